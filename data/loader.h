// The order of training: which examples make up batch number `step`. Everything is a pure function of (data
// set, options, step), so a run resumes exactly from its step alone. A Prefetcher makes the batches of coming
// steps on a thread of its own.
//
// Errors: ConfigError for a batch size below 1 or, in training, above the size of the set.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "data/dataset.h"
#include "data/prefetch.h"

namespace tapeformer {

// What remains of an epoch when the batch size does not divide the set. Training drops it, so that every step
// has the same shape; it is a different remainder in every shuffled epoch. Evaluation keeps it.
enum class LastBatch { drop, keep };

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = true;  // a new order in every epoch, from the seed
  uint64_t seed = 0;
  LastBatch last = LastBatch::drop;
};

// The order of an epoch: a uniformly random permutation of 0 .. count - 1, by Fisher and Yates.
std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t count);

// Threads: any number may ask at the same time.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options);

  const Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Steps count from 0 through all epochs; step / batches_per_epoch() is the epoch.
  std::vector<int64_t> indices_at(int64_t step) const;
  Batch batch_at(int64_t step) const { return dataset_->batch(indices_at(step)); }

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;
  Order order_of(int64_t epoch) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t batches_per_epoch_;
  mutable std::mutex mutex_;  // guards the order kept from the last call
  mutable int64_t kept_epoch_ = -1;
  mutable Order kept_order_;
};

// The batches of a loader, made ahead.
class Prefetcher : public Prefetch<Batch> {
 public:
  explicit Prefetcher(const std::shared_ptr<const Loader>& loader, int64_t first = 0,
                      int64_t last = std::numeric_limits<int64_t>::max(), size_t depth = 2)
      : Prefetch([loader](int64_t step) { return loader->batch_at(step); }, first, last, depth) {}
};

}  // namespace tapeformer
