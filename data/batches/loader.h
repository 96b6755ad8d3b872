// Batches of a data set for training and evaluation. The examples of a batch depend only on the data set, the
// options and the step, so a resumed run continues with the same batches.
//
// The constructor of Loader throws ConfigError if the data set is empty or a size is invalid. With
// LastBatchPolicy::drop, it also throws ConfigError if the batch size exceeds the number of examples, unless
// the loader draws overlapping examples at random (LoaderOptions::shuffle). Such a loader can return an
// example several times in a batch, so the batch size is not limited by the number of examples.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "data/batches/bucket_plan.h"
#include "data/batches/dataset.h"

namespace tapeformer {

// Treatment of the last batch of an epoch if it is smaller than the batch size. Training drops this batch, so
// that all steps have the same shape. With shuffling, the dropped examples differ between epochs. Evaluation
// keeps the batch.
enum class LastBatchPolicy { drop, keep };

struct LoaderOptions {
  int64_t batch_size = 1;  // examples in a batch; with batch_tokens: at most, or 0: no limit
  bool shuffle = true;     // permutes the examples in each epoch, or draws them at random if examples overlap
  uint64_t seed = 0;
  LastBatchPolicy last_batch = LastBatchPolicy::drop;
  // If true, the examples are divided into batch_size streams of consecutive examples, and `shuffle` is
  // ignored. Batch t contains example t of each stream. Row i of a batch therefore continues row i of the
  // previous batch.
  bool use_streams = false;
  // If positive, the batches are those of a BucketPlan with at most `batch_tokens` tokens of the inputs or of
  // the targets, padding included. `last_batch` and `use_streams` are then ignored: every example is in a
  // batch. If `shuffle` is false, the examples are sorted by length.
  int64_t batch_tokens = 0;
};

// Returns the indices of the examples in batch `batch_number` if LoaderOptions::use_streams is true. The data
// set has `example_count` examples, which are divided into `stream_count` streams. If `example_count` is not
// a multiple of `stream_count`, the first streams have one more example than the other streams. In this case,
// the last batch contains examples of the longer streams only.
std::vector<int64_t> compute_stream_indices(int64_t example_count, int64_t stream_count,
                                            int64_t batch_number);

// A loader that selects the examples of each step and reads them as a batch. Thread-safe.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options);

  const Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  // Returns the number of batches of each epoch. Must not be called with LoaderOptions::batch_tokens, with
  // which epochs differ in their number of batches.
  int64_t batches_per_epoch() const;
  // Returns the number of batches in the first `epochs` epochs. Both numbers can be fractional.
  double count_batches(double epochs) const;
  // Returns the share of padding in the first epoch; only with LoaderOptions::batch_tokens.
  double compute_padding_share() const;
  // Returns the number of complete epochs among the first `batches` batches.
  int64_t count_complete_epochs(int64_t batches) const;

  // Returns the indices of the examples of a step. Steps are counted from 0 over all epochs. The epoch of a
  // step is count_complete_epochs(step).
  std::vector<int64_t> indices_at(int64_t step) const;
  Batch batch_at(int64_t step) const { return dataset_->batch(indices_at(step)); }

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;
  Order get_epoch_permutation(int64_t epoch) const;
  bool draws_examples_at_random() const {
    return options_.shuffle && !options_.use_streams && dataset_->examples_per_token() > 1;
  }
  // Returns the randomly drawn indices of the examples of a step. The indices of different steps are drawn
  // independently, so no permutation of the data set has to be stored.
  std::vector<int64_t> draw_indices(int64_t step) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t batches_per_epoch_ = 0;
  std::optional<BucketPlan> plan_;     // with LoaderOptions::batch_tokens
  mutable std::mutex mutex_;           // guards plan_, cached_epoch_ and cached_order_
  mutable int64_t cached_epoch_ = -1;  // epoch whose order is in cached_order_
  mutable Order cached_order_;
};

}  // namespace tapeformer
