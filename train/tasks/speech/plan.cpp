#include "train/tasks/speech/plan.h"

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"

namespace tapeformer {

const std::vector<std::vector<int64_t>>& SpeechBatchPlan::plan_epoch(int64_t epoch) const {
  if (!options_.shuffle) epoch = 0;
  if (epoch != cached_epoch_) {
    cached_batches_ = plan_batches(frame_counts_, options_, epoch);
    cached_epoch_ = epoch;
  }
  return cached_batches_;
}

int64_t SpeechBatchPlan::find_first_batch(int64_t epoch) const {
  while (static_cast<int64_t>(epoch_first_batches_.size()) <= epoch)
    epoch_first_batches_.push_back(
        epoch_first_batches_.back() +
        static_cast<int64_t>(plan_epoch(static_cast<int64_t>(epoch_first_batches_.size()) - 1).size()));
  return epoch_first_batches_[static_cast<size_t>(epoch)];
}

int64_t SpeechBatchPlan::count_complete_epochs(int64_t batches) const {
  while (epoch_first_batches_.back() <= batches)
    find_first_batch(static_cast<int64_t>(epoch_first_batches_.size()));
  return std::upper_bound(epoch_first_batches_.begin(), epoch_first_batches_.end(), batches) -
         epoch_first_batches_.begin() - 1;
}

double SpeechBatchPlan::count_batches(double epochs) const {
  const double whole = std::floor(epochs);
  const auto first = static_cast<int64_t>(whole);
  const auto before = static_cast<double>(find_first_batch(first));
  return epochs == whole ? before : before + (epochs - whole) * static_cast<double>(plan_epoch(first).size());
}

std::vector<int64_t> SpeechBatchPlan::list_utterances(int64_t step) const {
  check(step >= 0, "SpeechBatchPlan", "step ", step, " is negative");
  const int64_t epoch = count_complete_epochs(step);
  return plan_epoch(epoch)[static_cast<size_t>(step - find_first_batch(epoch))];
}

}  // namespace tapeformer
