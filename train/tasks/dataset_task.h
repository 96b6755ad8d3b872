// The base class of tasks whose examples come from a Dataset. The class provides the batches, the division of
// batches among processes, and the sizes of the data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "data/batches/loader.h"
#include "data/batches/prefetch.h"
#include "train/tasks/task.h"

namespace tapeformer {

class DatasetTask : public Task {
 public:
  int64_t count_training_examples() const override {
    return loader_->dataset().size() / loader_->dataset().examples_per_token();
  }
  int64_t count_evaluation_examples() const override { return evaluation_set_->size(); }
  double count_batches(double epochs) const override {
    return epochs * static_cast<double>(loader_->batches_per_epoch());
  }
  int64_t count_complete_epochs(int64_t batches) const override {
    return batches / loader_->batches_per_epoch();
  }
  void prefetch_batches(int64_t first, int64_t end) override;
  BatchSlice get_slice(int64_t slot) const override { return slices_.at(slot); }
  std::string describe_examples(int64_t number) const override;
  DataDigest compute_data_digest() const override;

 protected:
  // A function that returns the loss divisor of a batch: the number of items, such as predictions, over which
  // the loss is averaged.
  using LossCount = std::function<double(const Batch&)>;

  // Loads the splits for training and evaluation. Throws ConfigError if data.batch_size is not divisible by
  // the number of processes.
  DatasetTask(const Config& config, const std::string& data_dir, Communicator& processes,
              LossCount loss_divisor);

  const Dataset& training_set() const { return loader_->dataset(); }
  const Dataset& evaluation_set() const { return *evaluation_set_; }
  int64_t evaluation_batch_size() const { return evaluation_batch_size_; }
  int64_t batches_per_epoch() const { return loader_->batches_per_epoch(); }
  Communicator& communicator() const { return communicator_; }
  // Removes the next batch from the prefetch queue, and returns this process's slice of the batch in host
  // memory. Stores the BatchSlice that later calls of get_slice(slot) return. `number` is the batch number
  // that error messages contain.
  Batch next_batch(int64_t number, int64_t slot);

 private:
  struct SlicedBatch {
    Batch batch;
    BatchSlice slice;
  };
  SlicedBatch load_slice(int64_t number) const;

  Communicator& communicator_;
  LossCount count_loss_items_;
  std::shared_ptr<const Dataset> evaluation_set_;
  std::shared_ptr<const Loader> loader_;
  int64_t evaluation_batch_size_ = 0;
  std::map<int64_t, BatchSlice> slices_;  // indexed by slot
  // Declared last, so that the thread of the queue ends before the members that it uses are destroyed.
  std::unique_ptr<PrefetchQueue<SlicedBatch>> prefetch_queue_;
};

}  // namespace tapeformer
