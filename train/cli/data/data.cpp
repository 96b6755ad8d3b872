// The command "tapeformer data": lists, downloads, verifies and prepares data sets.
#include <algorithm>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/dataset_kind.h"
#include "data/sets/directory.h"
#include "data/sets/fetch.h"
#include "data/sets/verify.h"
#include "data/speech/prepare/synthetic.h"
#include "data/speech/verify.h"
#include "train/cli/commands.h"
#include "train/cli/data/data_actions.h"
#include "train/cli/data_advice.h"
#include "train/cli/run_options.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr char kKaldi[] = "kaldi";

// A function that runs an action of "data". `names` are the words after the action on the command line.
using Action = void (*)(const std::vector<std::string>& names, const CommandLine& line);

void require_names(const std::vector<std::string>& names, const std::string& action) {
  if (names.empty()) throw ConfigError("\"tapeformer data " + action + "\" needs the NAME of a data set");
}

void list_action(const std::vector<std::string>& names, const CommandLine& line) {
  std::vector<std::string> known;
  std::vector<Report> rows;
  bool any_missing = false;
  const auto wanted = [&](const std::string& name) {
    known.push_back(name);
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const DatasetReport& report : list_dataset_reports(line.common_options.data_dir)) {
    if (!wanted(report.name)) continue;
    const CatalogueEntry& set = *report.entry;
    const auto total = static_cast<int64_t>(report.files.size());
    const auto missing = std::count_if(report.files.begin(), report.files.end(),
                                       [](const auto& file) { return file.path.empty(); });
    rows.push_back(Report()
                       .add("name", report.name)
                       .add("files", total - missing)
                       .add("of", total)
                       .add("folder", report.folder ? report.folder->string() : "not found")
                       .add("title", std::string(set.title)));
    const std::string advice = make_data_advice(set);
    any_missing = any_missing || missing == total;
    if (!names.empty() && !line.common_options.json && missing == total)
      log_info(set.name, " was not found; to get it: ", set.download_instructions, advice.empty() ? "" : ", ",
               advice);
  }
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw ConfigError(describe_unknown_word("data set", name, known));
  print_report(Report().add("sets", rows), line.common_options);
  if (names.empty() && any_missing && !line.common_options.json)
    log_info("to see how to get a data set: tapeformer data list NAME");
}

void fetch_action(const std::vector<std::string>& names, const CommandLine& line) {
  require_names(names, "fetch");
  std::vector<Report> rows;
  for (const std::string& name : names) {
    const DatasetReport set =
        fetch_dataset(name, line.common_options.data_dir, line.options.get<std::string>("from"));
    rows.push_back(Report()
                       .add("name", name)
                       .add("files", static_cast<int64_t>(set.files.size()))
                       .add("good", set.is_valid())
                       .add("folder", set.folder ? set.folder->string() : ""));
  }
  print_report(Report().add("sets", rows), line.common_options);
}

// Generates the corpus "synthetic-speech" in the first data directory, in which "data fetch" also stores data
// sets.
void prepare_synthetic_speech(const CommandLine& line) {
  const std::filesystem::path folder =
      choose_new_folder(require_catalogue_entry(kSyntheticSpeech), line.common_options.data_dir);
  SyntheticSpeechOptions options;
  options.train_count = line.options.get<int64_t>("sentences");
  options.valid_count = options.test_count = std::max<int64_t>(1, options.train_count / 10);
  options.seed = static_cast<uint64_t>(line.common_options.seed.value_or(0));
  write_synthetic_speech(folder, options);
  print_report(Report()
                   .add("name", kSyntheticSpeech)
                   .add("folder", folder.string())
                   .add("train", options.train_count)
                   .add("valid", options.valid_count)
                   .add("test", options.test_count),
               line.common_options);
}

bool is_image_set(const CatalogueEntry& set) {
  return set.type == DatasetType::images && !set.files.empty();
}
bool can_be_prepared(const CatalogueEntry& set) {
  return is_image_set(set) || set.format == CorpusFormat::kaldi;
}

// Creates the corpus synthetic-speech or a Kaldi corpus. Data sets of images need no conversion. For these
// sets, reads each split once to check that training can read the files.
void prepare_action(const std::vector<std::string>& names, const CommandLine& line) {
  require_names(names, "prepare");
  if (names == std::vector<std::string>{kSyntheticSpeech}) return prepare_synthetic_speech(line);
  if (names == std::vector<std::string>{kKaldi}) return prepare_kaldi(line);
  for (const std::string& name : names)
    if (name == kSyntheticSpeech || name == kKaldi)
      throw ConfigError("\"tapeformer data prepare " + name + "\" takes no other names of data sets");
  std::vector<Report> rows;
  for (const std::string& name : names)
    for (const std::string split : {"train", "test"}) {
      require_catalogue_entry(name, can_be_prepared, "a data set that can be prepared");
      const DatasetKind& kind = find_dataset_kind(name);
      const auto dataset =
          kind.make(OptionValues(kind.options), {.split = split, .data_dir = line.common_options.data_dir});
      rows.push_back(Report()
                         .add("name", name)
                         .add("split", split)
                         .add("examples", dataset->size())
                         .add("tokens_per_example", dataset->info().length + 1));
    }
  log_info("ready: these sets are read from their files as they are");
  print_report(Report().add("splits", rows), line.common_options);
}

std::vector<OptionSpec> make_data_options() {
  std::vector<OptionSpec> options = {
      {.name = "from",
       .default_value = std::string(),
       .help = "fetch: path or https:// URL of a folder, .tar.gz or .zip archive with the files, plain or "
               ".gz, instead of the published one"},
      {.name = "sentences",
       .default_value = int64_t{600},
       .help =
           "prepare synthetic-speech: sentences for training; valid and test have a tenth of this number"},
      {.name = "layout",
       .default_value = std::string("kaldi"),
       .help = "verify: layout of folders that are named by path",
       .choices = list_speech_layouts()},
      make_allow_commands_option()};
  for (OptionSpec& option : make_prepare_kaldi_options()) options.push_back(std::move(option));
  return options;
}

// Returns the data sets that can follow `words`, the words after "data".
std::vector<std::string> list_next_names(const Arguments& words) {
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (has("list")) return list_dataset_names([](const CatalogueEntry& set) { return !set.files.empty(); });
  if (has("verify")) return list_dataset_names(&CatalogueEntry::can_be_verified);
  if (has("fetch")) return list_dataset_names(can_be_fetched);
  if (!has("prepare") || has(kKaldi) || has(kSyntheticSpeech)) return {};
  return list_dataset_names(words.back() == "prepare" ? can_be_prepared : is_image_set);
}

// Returns the action that reads `option`, as the words after "data" on the command line, such as "prepare
// kaldi".
std::string find_action_of_option(const std::string& option) {
  if (option == "from") return "fetch";
  if (option == "sentences") return "prepare synthetic-speech";
  if (option == "layout" || option == "allow-commands") return "verify";
  return "prepare kaldi";
}

// Throws ConfigError for options that the action does not read.
void check_options(const CommandLine& line) {
  std::string action = line.positionals.front();
  if (action != "verify" && !line.common_options.config_settings.empty())
    throw ConfigError("\"tapeformer data " + action + "\" reads no config and does not take --set");
  if (action == "prepare" && line.positionals.size() == 2) action += " " + line.positionals.back();
  for (const std::string& option : line.given_option_names)
    if (find_action_of_option(option) != action)
      throw ConfigError("--" + option + " belongs to \"tapeformer data " + find_action_of_option(option) +
                        "\" and has no effect on \"tapeformer data " + action + "\"");
}

// Returns a list, such as "a, b or c", of the data sets without published checksums. For these sets,
// "data verify" checks the contents of the files.
std::string list_sets_without_checksums() {
  const auto names = list_dataset_names(
      [](const CatalogueEntry& set) { return set.can_be_verified() && !set.has_checksums(); });
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

std::string make_details() {
  return "list     prints the known data sets with the number of their files and their folder\n"
         "verify   compares the size and SHA-256 of every file with the published values; exit status 3 if\n"
         "         a file differs. For speech: prints every fault, with its file and line, that would stop\n"
         "         training or leave out an utterance. NAME is one of:\n"
         "         - " +
         list_sets_without_checksums() +
         "\n"
         "         - a layout and a folder, such as kaldi data/train, or kaldi data with its parts\n"
         "         - a CONFIG.toml\n"
         "         --set data.sample_rate=8000, --set data.lexicon=FILE and other keys apply as in "
         "training.\n"
         "fetch    downloads missing files over https into the first data directory, and verifies them\n"
         "prepare  reads a data set of images completely. synthetic-speech: generates the corpus with\n"
         "         espeak-ng. kaldi: makes a corpus from recordings and transcripts (--audio,\n"
         "         --transcripts, --lexicon, --out)\n\n"
         "Data directories, in order: --data-dir, $TAPEFORMER_DATA, $XDG_DATA_HOME/tapeformer\n"
         "(~/.local/share/tapeformer), each with one folder per data set; then the folder of the Debian\n"
         "package. data.path is the folder of TIMIT, LibriSpeech and Kaldi corpora.";
}

}  // namespace

CommandSpec make_data_spec(const Arguments& words) {
  return {.summary = "Lists, downloads, verifies or prepares data sets.",
          .positionals =
              {{.name = "ACTION",
                .help = "list, verify, fetch or prepare",
                .suggestions = {"list", "verify", "fetch", "prepare"}},
               {.name = "NAME",
                .help = "data sets (default of list and verify: all); verify also takes folders and configs",
                .is_required = false,
                .is_repeated = true,
                .suggestions = list_next_names(words)}},
          .options = make_data_options(),
          .details = make_details(),
          .uses_config = true};
}

int run_data(const CommandLine& line) {
  const std::vector<std::pair<std::string, Action>> actions = {
      {"list", list_action}, {"verify", verify_data}, {"fetch", fetch_action}, {"prepare", prepare_action}};
  const std::string& wanted = line.positionals.front();
  std::vector<std::string> known;
  for (const auto& [name, action] : actions) {
    known.push_back(name);
    if (name != wanted) continue;
    check_options(line);
    action({line.positionals.begin() + 1, line.positionals.end()}, line);
    return 0;
  }
  throw ConfigError(describe_unknown_word("action", wanted, known));
}

}  // namespace tapeformer
