#include "train/tasks/speech/transcribe.h"

#include "ops/view.h"
#include "train/tasks/speech/evaluate.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {

Transcript transcribe(const SpeechTask& task, const std::string& path, int64_t beam_size) {
  const NoGradScope no_grad;
  const Tensor features = compute_file_features(SpeechCorpus(task.config()), task.metadata(), path);
  const SpeechModelOptions& model = task.model().options();
  if (model.encoder_kind == SpeechEncoderKind::transformer && features.size(0) > model.max_frames)
    throw DataError(concat_text(path, ": ", features.size(0), " frames are more than model.max_frames = ",
                                model.max_frames, "; train a model with a larger value"));
  const Tensor lengths = Tensor::full({1}, static_cast<double>(features.size(0)), DType::int64);
  const Tensor batch = reshape(features, {1, features.size(0), features.size(1)});
  return {task.metadata().phone_table.phones(
              decode_labels(task.model().forward(batch, lengths, {}), beam_size).front()),
          features.size(0)};
}

}  // namespace tapeformer
