#include "data/batches/bucket_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/errors.h"
#include "core/random/rng.h"

namespace tapeformer {

std::vector<int64_t> make_epoch_permutation(uint64_t seed, int64_t epoch, int64_t example_count) {
  const RandomStream stream(seed, "shuffle", static_cast<uint64_t>(epoch));
  std::vector<int64_t> order(static_cast<size_t>(example_count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.uniform_below(i, i)]);
  return order;
}

std::vector<std::vector<int64_t>> plan_batches(std::span<const int64_t> lengths,
                                               const BucketPlanOptions& options, int64_t epoch) {
  if (options.max_batch_length < 1 || options.max_examples < 0)
    throw ConfigError(concat_text("batches: expected a size of at least 1 and at least 0 examples, found ",
                                  options.max_batch_length, " and ", options.max_examples));
  const auto count = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) order = make_epoch_permutation(options.seed, epoch, count);
  // Returns the sort key of example `i`. If options.shuffle is true, examples with the same rank have lengths
  // that differ by at most about 5 %. The stable sort keeps the random order of examples with the same rank,
  // so the batches differ between epochs.
  const auto rank = [&](int64_t i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    return options.shuffle
               ? static_cast<int64_t>(20 * std::log2(static_cast<double>(std::max<int64_t>(length, 1))) / 1.5)
               : length;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
  std::vector<std::vector<int64_t>> batches;
  int64_t longest = 0;
  for (const int64_t i : order) {
    const int64_t new_longest = std::max(longest, lengths[static_cast<size_t>(i)]);
    const int64_t filled = batches.empty() ? 0 : static_cast<int64_t>(batches.back().size());
    const bool fits = filled > 0 && new_longest * (filled + 1) <= options.max_batch_length &&
                      (options.max_examples == 0 || filled < options.max_examples);
    if (!fits) batches.emplace_back();
    batches.back().push_back(i);
    longest = fits ? new_longest : lengths[static_cast<size_t>(i)];
  }
  if (!options.shuffle) return batches;
  std::vector<std::vector<int64_t>> shuffled;
  for (const int64_t i : make_epoch_permutation(~options.seed, epoch, static_cast<int64_t>(batches.size())))
    shuffled.push_back(std::move(batches[static_cast<size_t>(i)]));
  return shuffled;
}

double compute_padding_share(std::span<const int64_t> lengths,
                             const std::vector<std::vector<int64_t>>& batches) {
  double used = 0, all = 0;
  for (const auto& batch : batches) {
    int64_t longest = 0;
    for (const int64_t i : batch) {
      longest = std::max(longest, lengths[static_cast<size_t>(i)]);
      used += static_cast<double>(lengths[static_cast<size_t>(i)]);
    }
    all += static_cast<double>(longest) * static_cast<double>(batch.size());
  }
  return all == 0 ? 0 : 1 - used / all;
}

const std::vector<std::vector<int64_t>>& BucketPlan::plan_epoch(int64_t epoch) const {
  if (!options_.shuffle) epoch = 0;
  if (epoch != cached_epoch_) {
    cached_batches_ = plan_batches(lengths_, options_, epoch);
    cached_epoch_ = epoch;
  }
  return cached_batches_;
}

int64_t BucketPlan::find_first_batch(int64_t epoch) const {
  while (static_cast<int64_t>(epoch_first_batches_.size()) <= epoch)
    epoch_first_batches_.push_back(
        epoch_first_batches_.back() +
        static_cast<int64_t>(plan_epoch(static_cast<int64_t>(epoch_first_batches_.size()) - 1).size()));
  return epoch_first_batches_[static_cast<size_t>(epoch)];
}

int64_t BucketPlan::count_complete_epochs(int64_t batches) const {
  while (epoch_first_batches_.back() <= batches)
    find_first_batch(static_cast<int64_t>(epoch_first_batches_.size()));
  return std::upper_bound(epoch_first_batches_.begin(), epoch_first_batches_.end(), batches) -
         epoch_first_batches_.begin() - 1;
}

double BucketPlan::count_batches(double epochs) const {
  const double whole = std::floor(epochs);
  const auto first = static_cast<int64_t>(whole);
  const auto before = static_cast<double>(find_first_batch(first));
  return epochs == whole ? before : before + (epochs - whole) * static_cast<double>(plan_epoch(first).size());
}

std::vector<int64_t> BucketPlan::list_examples(int64_t batch) const {
  check(batch >= 0, "BucketPlan", "batch ", batch, " is negative");
  const int64_t epoch = count_complete_epochs(batch);
  return plan_epoch(epoch)[static_cast<size_t>(batch - find_first_batch(epoch))];
}

}  // namespace tapeformer
