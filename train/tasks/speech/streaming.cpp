#include "train/tasks/speech/streaming.h"

#include <algorithm>
#include <cmath>

#include "core/system/log.h"
#include "train/build.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {
namespace {

constexpr double kFramesPerSecond = 100;

void check_model(const SpeechTask& task) {
  const SpeechModelOptions& model = task.model().options();
  if (model.encoder_kind == SpeechEncoderKind::lstm)
    throw ConfigError(std::string("streaming needs a Transformer, found ") +
                      (model.lstm_bidirectional ? "a bidirectional LSTM, which depends on later frames"
                                                : "an LSTM, which has no form for single frames"));
  if (!model.causal)
    throw ConfigError("the model depends on later frames; streaming needs model.causal = true in training");
  const std::string text = describe_unsupported(
      model.encoder.attention, "recurrent form, which streaming needs", &AttentionCapabilities::recurrent);
  if (!text.empty()) throw ConfigError(text);
}

int64_t compute_window_frames(const SpeechTask& task, double seconds) {
  if (seconds == 0) return 0;
  if (seconds == kLongestTrainingUtterance)
    return std::max(task.metadata().max_frame_count, StreamDecoder::kMinWindowFrames);
  const auto frames = static_cast<int64_t>(std::llround(seconds * kFramesPerSecond));
  if (frames < StreamDecoder::kMinWindowFrames)
    throw ConfigError(concat_text("the window ", seconds, ": expected -1, 0 or at least ",
                                  StreamDecoder::kMinWindowFrames / kFramesPerSecond, " seconds"));
  return frames;
}

// Sets options.feature_scales and options.feature_offsets, which undo the normalization of the features by
// global statistics. The decoder needs the features without normalization to compute the energy of each
// frame, from which the decoder detects pauses. If the run has no global statistics, sets the scales to 1 and
// the offsets to 0.
void set_scale(const SpeechTask& task, StreamDecoderOptions& options) {
  const SpeechDataOptions data = SpeechCorpus(task.config()).options();
  const auto dims = static_cast<size_t>(task.metadata().feature_dim / (data.deltas + 1));
  options.feature_scales.assign(dims, 1);
  options.feature_offsets.assign(dims, 0);
  if (!task.metadata().global_statistics) return;
  const FeatureStatistics& all = *task.metadata().global_statistics;
  for (size_t i = 0; i < std::min(dims, all.sums.size()); ++i) {
    const double mean = all.sums[i] / all.frame_count,
                 variance = all.square_sums[i] / all.frame_count - mean * mean;
    options.feature_offsets[i] = mean;
    if (data.normalize_variance) options.feature_scales[i] = std::sqrt(std::max(variance, 0.0));
  }
}

}  // namespace

OptionSpec make_window_option() {
  return {.name = "window",
          .default_value = kLongestTrainingUtterance,
          .help =
              "longest time in seconds before a stream continues with a new state; 0: no limit; -1: the "
              "length of the longest training utterance",
          .min = kLongestTrainingUtterance,
          .max = 86400};
}

std::unique_ptr<StreamDecoder> make_stream_decoder(const SpeechTask& task, double window_seconds) {
  check_model(task);
  const SpeechCorpus corpus(task.config());
  if (corpus.needs_whole_utterances())
    log_info(
        "data.cmvn = \"", describe_normalization(corpus),
        "\" normalizes over the whole recording, which is read first; with \"global\" or \"none\", a model "
        "needs no later frames");
  StreamDecoderOptions options{.max_window_frames = compute_window_frames(task, window_seconds)};
  // The decoder finds pauses by the energies of filterbank features. Features that are read from files are
  // not filterbank energies, so restarts at pauses are disabled.
  if (corpus.has_mfc_files()) options.min_pause_frames = 0;
  set_scale(task, options);
  return translate_option_errors([&] { return std::make_unique<StreamDecoder>(task.model(), options); });
}

}  // namespace tapeformer
