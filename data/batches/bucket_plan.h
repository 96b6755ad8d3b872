// Batches of examples of similar length. A batch has a limited size including padding, so epochs can differ
// in their number of batches.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tapeformer {

// Returns the order of an epoch: a uniformly random permutation of 0 .. example_count - 1 (Fisher-Yates).
std::vector<int64_t> make_epoch_permutation(uint64_t seed, int64_t epoch, int64_t example_count);

struct BucketPlanOptions {
  // Maximum size of a batch, including padding: the number of examples times the length of the longest. A
  // longer example forms a batch alone.
  int64_t max_batch_length = 20000;
  int64_t max_examples = 0;  // maximum number of examples in a batch; 0: no limit
  // If true, the examples of each batch and the order of the batches are random and depend on `seed` and the
  // epoch. If false, the batches contain the examples in order of increasing length.
  bool shuffle = true;
  uint64_t seed = 0;
};

// Returns the batches of an epoch. A batch is a list of indices into `lengths`, which contains the length of
// each example. Every example is in exactly one batch, and the examples of a batch have similar lengths. If
// options.shuffle is true, the order of the batches and the order of examples with similar lengths are
// random. Throws ConfigError if max_batch_length is below 1 or max_examples is negative.
std::vector<std::vector<int64_t>> plan_batches(std::span<const int64_t> lengths,
                                               const BucketPlanOptions& options, int64_t epoch);

// Returns the padding of all batches, divided by the size of all batches including padding.
double compute_padding_share(std::span<const int64_t> lengths,
                             const std::vector<std::vector<int64_t>>& batches);

// The batches of all epochs, numbered from the start of training. They depend only on the lengths and the
// options. The class is not thread-safe, because it caches epochs.
class BucketPlan {
 public:
  BucketPlan(std::vector<int64_t> lengths, const BucketPlanOptions& options)
      : lengths_(std::move(lengths)), options_(options) {}

  // Returns the examples of a batch as indices into the argument `lengths` of the constructor.
  std::vector<int64_t> list_examples(int64_t batch) const;
  // Returns the number of batches in the first `epochs` epochs. Both `epochs` and the returned number can be
  // fractional.
  double count_batches(double epochs) const;
  // Returns the number of complete epochs among the first `batches` batches.
  int64_t count_complete_epochs(int64_t batches) const;
  // Returns compute_padding_share() of the first epoch.
  double compute_padding_share() const { return tapeformer::compute_padding_share(lengths_, plan_epoch(0)); }

 private:
  const std::vector<std::vector<int64_t>>& plan_epoch(int64_t epoch) const;
  int64_t find_first_batch(int64_t epoch) const;

  std::vector<int64_t> lengths_;
  BucketPlanOptions options_;
  mutable std::vector<int64_t> epoch_first_batches_ = {0};  // number of the first batch of each planned epoch
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<std::vector<int64_t>> cached_batches_;
};

}  // namespace tapeformer
