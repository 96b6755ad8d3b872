// The plan of the batches of a training run on speech. A batch has utterances of similar length and a limited
// number of frames, so epochs can differ in their number of batches. The plan depends only on the lengths and
// the options. The class is not thread-safe, because it caches epochs.
#pragma once

#include <cstdint>
#include <vector>

#include "data/speech/dataset.h"

namespace tapeformer {

class SpeechBatchPlan {
 public:
  SpeechBatchPlan(std::vector<int64_t> frames, const BatchPlanOptions& options)
      : frame_counts_(std::move(frames)), options_(options) {}

  // Returns the utterances of a batch as indices into the argument `frames` of the constructor. Batches are
  // numbered from the start of training.
  std::vector<int64_t> list_utterances(int64_t batch) const;
  // Returns the number of batches in the first `epochs` epochs. Both `epochs` and the returned number can be
  // fractional.
  double count_batches(double epochs) const;
  // Returns the number of complete epochs among the first `batches` batches.
  int64_t count_complete_epochs(int64_t batches) const;
  // Returns the number of padding frames, divided by the number of all frames in the batches of the first
  // epoch.
  double compute_padding_share() const {
    return tapeformer::compute_padding_share(frame_counts_, plan_epoch(0));
  }

 private:
  const std::vector<std::vector<int64_t>>& plan_epoch(int64_t epoch) const;
  int64_t find_first_batch(int64_t epoch) const;

  std::vector<int64_t> frame_counts_;
  BatchPlanOptions options_;
  mutable std::vector<int64_t> epoch_first_batches_ = {0};  // number of the first batch of each planned epoch
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<std::vector<int64_t>> cached_batches_;
};

}  // namespace tapeformer
