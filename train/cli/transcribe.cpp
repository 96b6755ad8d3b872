// The command "tapeformer transcribe": prints the phones of recordings.
#include <algorithm>
#include <chrono>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "data/files/text_lines.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/tasks/speech/features.h"
#include "train/tasks/speech/streaming.h"
#include "train/tasks/speech/transcribe.h"

namespace tapeformer {
namespace {

constexpr int kDataMissingOrCorrupt = 3;
constexpr double kFrameSeconds = 0.01;
constexpr char kStandardInput[] = "-";

struct Recognition {
  Transcript transcript;
  // Reports with the time and the name of each phone of a stream. `partials` is empty if the phones were
  // already printed, or if the recording was not transcribed as a stream.
  std::vector<Report> partials;
};

// Transcribes a stream. If `print` is true, prints each phone when it begins. Otherwise, adds each phone to
// `partials`.
Recognition transcribe_stream(const SpeechTask& task, StreamDecoder& stream, FeatureStream input,
                              bool print) {
  stream.reset();
  Recognition result;
  for (Tensor rows = input.read_frames(); rows.defined(); rows = input.read_frames())
    for (int64_t row = 0; row < rows.size(0); ++row)
      for (const int64_t label :
           stream.push(rows.view({1, rows.size(1)}, {rows.size(1), 1}, row * rows.size(1)))) {
        const std::string& phone = task.metadata().phone_table.names()[static_cast<size_t>(label)];
        const double seconds = static_cast<double>(stream.frame_count()) * kFrameSeconds;
        result.transcript.phones.push_back(phone);
        if (print) {
          char time[32];
          std::snprintf(time, sizeof time, "%8.2f s  ", seconds);
          print_text(time + phone + "\n");
        } else {
          result.partials.push_back(Report().add("seconds", seconds).add("phone", phone));
        }
      }
  result.transcript.frame_count = stream.frame_count();
  return result;
}

}  // namespace

CommandSpec make_transcribe_spec(const Arguments& /*words*/) {
  return {
      .summary = "Prints the phones that a trained model recognizes in recordings.",
      .positionals = {make_run_argument(),
                      {.name = "FILE",
                       .help =
                           "recordings (WAV, AU, FLAC, Ogg, SPHERE), or .mfc files for a model of AN4; with "
                           "--stream also -, a WAV from standard input",
                       .is_repeated = true}},
      .options = {make_checkpoint_option(),
                  {.name = "stream",
                   .default_value = false,
                   .help =
                       "transcribe frame by frame and print each phone when it begins; needs a causal model"},
                  make_window_option(),
                  {.name = "raw",
                   .default_value = false,
                   .help = "standard input contains 16-bit samples of one channel, without a header"},
                  {.name = "beam",
                   .default_value = int64_t{0},
                   .help = "prefixes of a beam search; 0: the most probable class of each frame",
                   .min = 0,
                   .max = kMaxBeamSize}},
      .details = "Files that cannot be used are reported and skipped, and the exit status is then 3.",
      .uses_config = true};
}

int run_transcribe(const CommandLine& line) {
  const bool streams = line.options.get<bool>("stream"), raw = line.options.get<bool>("raw");
  const auto beam = line.options.get<int64_t>("beam");
  const auto window = line.options.get<double>("window");
  const std::vector<std::string> files(line.positionals.begin() + 1, line.positionals.end());
  const bool piped = std::find(files.begin(), files.end(), kStandardInput) != files.end();
  if (streams && beam > 0) throw ConfigError("--stream excludes --beam, because it decodes frame by frame");
  if (window != kLongestTrainingUtterance && !streams) throw ConfigError("--window needs --stream");
  if (piped && !streams) throw ConfigError("standard input (\"-\") needs --stream");
  if (raw && !piped) throw ConfigError("--raw needs standard input: name \"-\" as a FILE");
  const LoadedTask run = load_task(line, ConfigPurpose::transcription);
  require_subject(*run.task, {"speech"}, "\"transcribe\"");
  const auto& task = run.as<SpeechTask>();
  const std::unique_ptr<StreamDecoder> stream = streams ? make_stream_decoder(task, window) : nullptr;
  const SpeechCorpus corpus(task.config());
  std::vector<Report> rows;
  bool failed = false;
  for (const std::string& path : files) {
    Report row;
    row.add("file", path);
    const auto fail = [&](const std::string& text) {
      failed = true;
      row.add("error", text);
      log_warning(text);
    };
    try {
      const auto start = std::chrono::steady_clock::now();
      if (!line.common_options.json && streams) print_text(escape_line(path) + "\n");
      const Recognition heard =
          !streams ? Recognition{transcribe(task, path, beam), {}}
          : path == kStandardInput
              ? transcribe_stream(task, *stream, {corpus, task.metadata(), AudioPipe{.is_raw = raw}},
                                  !line.common_options.json)
              : transcribe_stream(task, *stream, {corpus, task.metadata(), path}, !line.common_options.json);
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      row.add("phones", heard.transcript.phones)
          .add("frames", heard.transcript.frame_count)
          .add("seconds", took);
      if (streams) row.add("restarts", stream->restart_count()).add("partials", heard.partials);
      if (!line.common_options.json)
        print_text(escape_line(path) + "\t" + join_words(heard.transcript.phones) + "\n");
    } catch (const DataError& error) {
      fail(error.what());
    } catch (const ShapeError& error) {
      fail(path + ": " + error.what());
    }
    rows.push_back(row);
  }
  if (line.common_options.json) {
    Report report;
    report.add("files", rows);
    if (stream) report.add("state_bytes", stream->state_bytes());
    print_report(report.add("checkpoint", run.checkpoint_folder.string()), line.common_options);
  }
  return failed ? kDataMissingOrCorrupt : 0;
}

}  // namespace tapeformer
