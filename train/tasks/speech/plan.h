// The plan of the batches of a training run on speech. A batch has utterances of similar length and a limited
// number of frames, so epochs can differ in their number of batches. The plan depends only on the lengths and
// the options. The class is not thread-safe, because it caches epochs.
#pragma once

#include <cstdint>
#include <vector>

#include "data/speech/dataset.h"

namespace tapeformer {

class SpeechPlan {
 public:
  SpeechPlan(std::vector<int64_t> frames, const BatchPlanOptions& options)
      : frames_(std::move(frames)), options_(options) {}

  // Returns the utterances of batch `step` as indices into `frames`.
  std::vector<int64_t> at(int64_t step) const;
  // Returns the number of batches in a number of epochs, which may be fractional.
  double batches_in(double epochs) const;
  // Returns the number of complete epochs among the first `batches` batches.
  int64_t epochs_done(int64_t batches) const;
  // Returns the share of padding in the frames of all batches of the first epoch.
  double padding() const { return compute_padding_share(frames_, plan(0)); }

 private:
  const std::vector<std::vector<int64_t>>& plan(int64_t epoch) const;
  int64_t start(int64_t epoch) const;

  std::vector<int64_t> frames_;
  BatchPlanOptions options_;
  mutable std::vector<int64_t> starts_ = {0};  // number of the first batch of each planned epoch
  mutable int64_t kept_epoch_ = -1;
  mutable std::vector<std::vector<int64_t>> kept_;
};

}  // namespace tapeformer
