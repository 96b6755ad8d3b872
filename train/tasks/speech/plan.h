// Which utterances make up batch number `step` of a training on speech: epochs whose batches hold as many
// utterances of about one length as a budget of frames allows. Epochs may differ in their number of batches,
// so an epoch starts where those before it end. A pure function of the lengths and options; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data/speech/dataset.h"

namespace tapeformer {

class SpeechPlan {
 public:
  SpeechPlan(std::vector<int64_t> frames, const BatchPlanOptions& options)
      : frames_(std::move(frames)), options_(options) {}

  // Places in `frames`.
  std::vector<int64_t> at(int64_t step) const;
  // Batches of the first epochs, a fraction of the next one included.
  double batches_in(double epochs) const;
  // Whole epochs among the first batches.
  int64_t epochs_done(int64_t batches) const;
  // The share of padding in the first epoch.
  double padding() const { return padding_share(frames_, plan(0)); }

 private:
  const std::vector<std::vector<int64_t>>& plan(int64_t epoch) const;
  int64_t start(int64_t epoch) const;

  std::vector<int64_t> frames_;
  BatchPlanOptions options_;
  mutable std::vector<int64_t> starts_ = {0};  // of the epochs known so far
  mutable int64_t kept_epoch_ = -1;
  mutable std::vector<std::vector<int64_t>> kept_;
};

}  // namespace tapeformer
