// tapeformer transcribe: the phones of recordings.
#include <chrono>

#include "core/errors.h"
#include "core/log.h"
#include "models/speech_stream.h"
#include "ops/view.h"
#include "train/commands/commands.h"
#include "train/commands/run_options.h"
#include "train/speech_evaluate.h"

namespace tapeformer {
namespace {

constexpr int kDataMissingOrCorrupt = 3;
constexpr double kFrameSeconds = 0.01;

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

struct Transcript {
  Words phones;
  std::vector<Report> partials;  // when which phone was heard
};

Transcript transcribe(const LoadedSpeechRun& run, const Tensor& features, int64_t beam) {
  const NoGrad no_grad;
  const Tensor lengths = Tensor::full({1}, static_cast<double>(features.size(0)), DType::int64);
  const Tensor batch = reshape(features, {1, features.size(0), features.size(1)});
  return {run.description.phones.phones(decode(run.model->forward(batch, lengths, {}), beam).front()), {}};
}

// The best class of every frame, frame by frame; a phone is told when it begins.
Transcript transcribe_stream(const LoadedSpeechRun& run, SpeechStream& stream, const Tensor& features,
                             bool print) {
  stream.reset();
  Transcript result;
  int64_t before = kSpeechBlank;
  const int64_t classes = run.description.phones.classes();
  for (int64_t frame = 0; frame < features.size(0); ++frame) {
    if (!stream.push(features.view({1, features.size(1)}, {features.size(1), 1}, frame * features.size(1))))
      continue;
    const Tensor newest = stream.logits().to(kCpu);
    const float* logits = newest.data<float>();
    const int64_t best = std::max_element(logits, logits + classes) - logits;
    if (best != kSpeechBlank && best != before) {
      result.phones.push_back(run.description.phones.names()[static_cast<size_t>(best)]);
      const double seconds = static_cast<double>(frame + 1) * kFrameSeconds;
      result.partials.push_back(Report().add("seconds", seconds).add("phones", joined(result.phones)));
      if (print) {
        char time[32];
        std::snprintf(time, sizeof time, "%8.2f s  ", seconds);
        print_text(time + joined(result.phones) + "\n");
      }
    }
    before = best;
  }
  return result;
}

// The Transformer has a table of positions.
void require_length(const Config& config, const std::string& path, int64_t frames) {
  if (config.model.encoder == "transformer" && frames > config.model.max_frames)
    throw DataError(concat_text(path, ": ", frames,
                                " frames are more than model.max_frames = ", config.model.max_frames,
                                "; a model for longer recordings is trained with more"));
}

std::optional<CommandLine> parse(const Arguments& arguments) {
  return parse_command(
      {.name = "transcribe",
       .summary = "Prints the phones that a trained model hears in recordings.",
       .positionals = {run_positional(),
                       {.name = "FILE",
                        .help = "recordings (WAV, FLAC, Ogg, SPHERE), or .mfc files for a model of AN4",
                        .repeated = true}},
       .options = {checkpoint_option(),
                   {.name = "stream",
                    .default_value = false,
                    .help = "frame by frame, with what was heard so far; for causal models"},
                   {.name = "beam",
                    .default_value = int64_t{0},
                    .help = "prefixes of a beam search; 0: the best class of every frame",
                    .min = 0,
                    .max = 10000}},
       .details = "A file that cannot be used is reported, the others are done, and the exit code is 3.",
       .uses_config = true},
      arguments);
}

}  // namespace

int run_transcribe(const Arguments& arguments) {
  const auto line = parse(arguments);
  if (!line) return 0;
  const bool streams = line->options.get<bool>("stream");
  const auto beam = line->options.get<int64_t>("beam");
  if (streams && beam > 0) throw ConfigError("--stream decides frame by frame: it cannot go with --beam");
  const LoadedSpeechRun run = load_speech_run(find_run(*line));
  std::unique_ptr<SpeechStream> stream;
  if (streams) {
    if (run.config.model.encoder == "lstm")
      throw ConfigError(run.checkpoint.string() + ": --stream needs a Transformer, found " +
                        (run.config.model.bidirectional ? "a bidirectional LSTM, which sees later frames"
                                                        : "an LSTM, which is not run frame by frame"));
    if (!run.config.model.causal)
      throw ConfigError(run.checkpoint.string() +
                        " sees later frames: --stream needs a model trained with model.causal = true");
    const AttentionKind& kind = attention_kind(run.config.model.attention);
    if (!kind.capabilities.recurrent)
      throw ConfigError("attention kind \"" + kind.name + "\" has no recurrent form, which --stream needs");
    stream = std::make_unique<SpeechStream>(*run.model);
    if (features_need_whole_utterance(run.config))
      log_info(
          "data.cmvn = \"", run.config.data.cmvn,
          "\" normalises by the whole recording, which is read first; a model with \"global\" or \"none\" "
          "needs no later frames");
  }
  std::vector<Report> rows;
  bool failed = false;
  for (size_t i = 1; i < line->positionals.size(); ++i) {
    const std::string& path = line->positionals[i];
    Report row;
    row.add("file", path);
    try {
      const Tensor features = file_features(run.config, run.description, path);
      require_length(run.config, path, features.size(0));
      const auto start = std::chrono::steady_clock::now();
      if (!line->common.json && streams) print_text(path + "\n");
      const Transcript heard = streams ? transcribe_stream(run, *stream, features, !line->common.json)
                                       : transcribe(run, features, beam);
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      row.add("phones", heard.phones).add("frames", features.size(0)).add("seconds", took);
      if (streams) row.add("partials", heard.partials);
      if (!line->common.json) print_text(path + "\t" + joined(heard.phones) + "\n");
    } catch (const DataError& error) {
      failed = true;
      row.add("error", std::string(error.what()));
      log_warning(error.what());
    } catch (const ShapeError& error) {
      failed = true;
      row.add("error", path + ": " + error.what());
      log_warning(path, ": ", error.what());
    }
    rows.push_back(row);
  }
  if (line->common.json) {
    Report report;
    report.add("files", rows);
    if (stream) report.add("state_bytes", stream->state_bytes());
    print_report(report.add("checkpoint", run.checkpoint.string()), line->common);
  }
  return failed ? kDataMissingOrCorrupt : 0;
}

}  // namespace tapeformer
