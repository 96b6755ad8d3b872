// The command "tapeformer data prepare kaldi": creates a Kaldi corpus from recordings and transcripts.
#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "data/speech/prepare/prepare.h"
#include "data/speech/read_corpus.h"
#include "train/cli/configs_folder.h"
#include "train/cli/data/data_actions.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::string get_required_option(const CommandLine& line, const std::string& option) {
  const auto value = line.options.get<std::string>(option);
  if (value.empty()) throw ConfigError("\"tapeformer data prepare kaldi\" needs --" + option);
  return value;
}

SpeechPreparationOptions parse_prepare_options(const CommandLine& line) {
  SpeechPreparationOptions options;
  options.audio_folder = get_required_option(line, "audio");
  options.output_folder = get_required_option(line, "out");
  const auto transcripts = line.options.get<std::string>("transcripts");
  options.transcript_path = transcripts.empty() ? options.audio_folder : fs::path(transcripts);
  for (const std::string& path : line.options.get<std::vector<std::string>>("lexicon"))
    options.lexicon_paths.emplace_back(path);
  if (options.lexicon_paths.empty()) options.lexicon_paths = {find_cmudict(line.common_options.data_dir)};
  options.columns = {line.options.get<std::string>("audio-column"),
                     line.options.get<std::string>("text-column"),
                     line.options.get<std::string>("speaker-column")};
  options.speaker_rule = line.options.get<std::string>("speakers");
  options.split_unit = line.options.get<std::string>("split");
  options.valid_share = line.options.get<double>("valid");
  options.test_share = line.options.get<double>("test");
  options.seed = static_cast<uint64_t>(line.common_options.seed.value_or(0));
  options.propose_pronunciations = line.options.get<bool>("propose");
  return options;
}

void warn(const SpeechPreparationReport& report, const SpeechPreparationOptions& options) {
  for (const std::string& fault : select_faults_to_show(report.faults)) log_warning("left out: ", fault);
  if (report.untranscribed_recording_count > 0)
    log_warning(report.untranscribed_recording_count, " recordings have no transcript");
  if (!report.unknown_words.empty())
    log_warning(report.unknown_word_utterance_count, " utterances are left out: the lexicon lacks ",
                report.unknown_words.size(), " of their words, listed in ",
                (options.output_folder / "unknown-words.txt").string());
  if (report.proposed_pronunciation_count > 0)
    log_info("review the ", report.proposed_pronunciation_count, " proposed pronunciations in ",
             (options.output_folder / "proposed-lexicon.txt").string(),
             ", then prepare again with it as another --lexicon");
  if (report.multichannel_count > 0)
    log_warning(report.multichannel_count, " recordings have several channels: data.channel chooses one");
  if (report.recording_counts_by_rate.size() > 1)
    log_warning("the recordings have ", report.recording_counts_by_rate.size(),
                " sample rates: data.resample = true converts them");
}

int64_t find_most_common_rate(const SpeechPreparationReport& report) {
  int64_t rate = 0, max_count = 0;
  for (const auto& [one, count] : report.recording_counts_by_rate)
    if (count > max_count) {
      rate = one;
      max_count = count;
    }
  return rate;
}

// Returns the option --set for a key whose value is a path, as a word of a shell.
std::string format_path_setting(const std::string& key, const fs::path& path) {
  std::string value = path.string();
  // Values such as 2024, true and [a] are not strings in TOML.
  const std::set<std::string> words = {"true", "false", "inf", "nan"};
  if (value.find_first_of("0123456789+-[{\"'") == 0 || words.contains(value)) value = "./" + value;
  return " --set " + quote_shell_word(key + "=" + value);
}

std::string make_train_command(const SpeechPreparationReport& report, const SpeechPreparationOptions& options,
                               const fs::path& lexicon) {
  const fs::path folder = find_configs_folder();
  const fs::path config = (folder.empty() ? "configs" : folder) / "speech/own.toml",
                 near = fs::proximate(config);
  const bool is_below = !near.empty() && *near.begin() != "..";
  // Without a known folder of configs, the command runs in the source folder.
  const auto place = [&](const fs::path& path) { return folder.empty() ? fs::absolute(path) : path; };
  std::string command = "tapeformer train " + quote_shell_word((is_below ? near : config).string()) +
                        format_path_setting("data.path", place(options.output_folder)) +
                        format_path_setting("data.lexicon", place(lexicon)) +
                        concat_text(" --set data.sample_rate=", find_most_common_rate(report));
  if (report.recording_counts_by_rate.size() > 1) command += " --set data.resample=true";
  if (report.multichannel_count > 0) command += " --set data.channel=0";
  if (report.valid_count == 0)
    command += concat_text(" --set data.validation=", std::max<int64_t>(1, report.train_count / 10));
  return command;
}

}  // namespace

std::vector<OptionSpec> make_prepare_kaldi_options() {
  return {
      {.name = "audio", .default_value = std::string(), .help = "prepare kaldi: folder of the recordings"},
      {.name = "transcripts",
       .default_value = std::string(),
       .help = "prepare kaldi: table (.tsv, .csv), list of \"id text\" lines, or folder with .txt files; "
               "without it, beside the recordings"},
      {.name = "lexicon",
       .default_value = std::vector<std::string>{},
       .help = "prepare kaldi: file with the phones of words; may be repeated; without it CMUdict"},
      {.name = "out", .default_value = std::string(), .help = "prepare kaldi: output folder"},
      {.name = "audio-column",
       .default_value = std::string(),
       .help = "prepare kaldi: column of the recording in a table, by name or number"},
      {.name = "text-column", .default_value = std::string(), .help = "prepare kaldi: column of the text"},
      {.name = "speaker-column",
       .default_value = std::string(),
       .help = "prepare kaldi: column of the speaker"},
      {.name = "speakers",
       .default_value = std::string("auto"),
       .help = "prepare kaldi: speaker if no column names it: the folder of the recording, or the prefix of "
               "the file name up to - or _",
       .choices = {"auto", "folder", "prefix", "none"}},
      {.name = "split",
       .default_value = std::string("auto"),
       .help = "prepare kaldi: unit that is not divided between parts; auto: speaker if there are 10 or more",
       .choices = {"auto", "speaker", "utterance"}},
      {.name = "valid",
       .default_value = 0.1,
       .help = "prepare kaldi: share of the utterances for validation",
       .min = 0,
       .max = 1},
      {.name = "test",
       .default_value = 0.1,
       .help = "prepare kaldi: share of the utterances for the test",
       .min = 0,
       .max = 1},
      {.name = "propose",
       .default_value = false,
       .help = "prepare kaldi: write pronunciations of unknown words by espeak-ng to a file for review"}};
}

void prepare_kaldi(const CommandLine& line) {
  const SpeechPreparationOptions options = parse_prepare_options(line);
  const SpeechPreparationReport report = prepare_speech(options);
  warn(report, options);
  const std::string lexicon = (options.output_folder / "lexicon.txt").string();
  const std::string command = make_train_command(report, options, lexicon);
  Report printed;
  printed.add("name", "kaldi")
      .add("folder", options.output_folder.string())
      .add("train", report.train_count)
      .add("valid", report.valid_count)
      .add("test", report.test_count)
      .add("speakers", report.speaker_count)
      .add("recordings", report.recording_count)
      .add("transcripts", report.transcript_count)
      .add("without_transcript", report.untranscribed_recording_count)
      .add("faults", static_cast<int64_t>(report.faults.size()))
      .add("with_unknown_words", report.unknown_word_utterance_count)
      .add("unknown_words", static_cast<int64_t>(report.unknown_words.size()))
      .add("proposed", report.proposed_pronunciation_count)
      .add("sample_rate", find_most_common_rate(report))
      .add("lexicon", lexicon);
  if (line.common_options.json) printed.add("train_command", command);
  print_report(printed, line.common_options);
  if (line.common_options.json) return;
  const std::string place = find_configs_folder().empty() ? ", in the source folder of Tapeformer" : "";
  print_text("\nTo train on this corpus" + place + ":\n" + command + "\n");
}

}  // namespace tapeformer
