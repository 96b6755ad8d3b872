#include "train/tasks/speech/plan.h"

#include <algorithm>
#include <cmath>

#include "core/errors.h"

namespace tapeformer {

const std::vector<std::vector<int64_t>>& SpeechPlan::plan(int64_t epoch) const {
  if (!options_.shuffle) epoch = 0;
  if (epoch != kept_epoch_) {
    kept_ = plan_batches(frames_, options_, epoch);
    kept_epoch_ = epoch;
  }
  return kept_;
}

int64_t SpeechPlan::start(int64_t epoch) const {
  while (static_cast<int64_t>(starts_.size()) <= epoch)
    starts_.push_back(starts_.back() +
                      static_cast<int64_t>(plan(static_cast<int64_t>(starts_.size()) - 1).size()));
  return starts_[static_cast<size_t>(epoch)];
}

int64_t SpeechPlan::epochs_done(int64_t batches) const {
  while (starts_.back() <= batches) start(static_cast<int64_t>(starts_.size()));
  return std::upper_bound(starts_.begin(), starts_.end(), batches) - starts_.begin() - 1;
}

double SpeechPlan::batches_in(double epochs) const {
  const double whole = std::floor(epochs);
  const auto first = static_cast<int64_t>(whole);
  const auto before = static_cast<double>(start(first));
  return epochs == whole ? before : before + (epochs - whole) * static_cast<double>(plan(first).size());
}

std::vector<int64_t> SpeechPlan::at(int64_t step) const {
  check(step >= 0, "SpeechPlan", "step ", step, " is negative");
  const int64_t epoch = epochs_done(step);
  return plan(epoch)[static_cast<size_t>(step - start(epoch))];
}

}  // namespace tapeformer
