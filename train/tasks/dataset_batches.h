// Batches and evaluations of tasks whose examples come from a Dataset.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/batches/loader.h"
#include "data/batches/prefetch.h"
#include "train/tasks/task.h"

namespace tapeformer {

// A function that returns the number of items in a batch, such as predictions, over which its loss is
// averaged.
using LossCount = std::function<double(const Batch&)>;

class DatasetBatches final : public BatchSource {
 public:
  DatasetBatches(const Config& config, std::shared_ptr<const Dataset> dataset, Communicator& processes,
                 LossCount count_loss_items);
  // Returns Loader::compute_padding_share().
  double compute_padding_share() const { return loader_.compute_padding_share(); }

  int64_t count_examples() const override {
    return loader_.dataset().size() / loader_.dataset().examples_per_token();
  }
  double count_batches(double epochs) const override { return loader_.count_batches(epochs); }
  int64_t count_complete_epochs(int64_t batches) const override {
    return loader_.count_complete_epochs(batches);
  }
  StepBatch next(int64_t number) override;
  std::string describe_examples(int64_t number) const override;
  std::string compute_digest() const override { return loader_.dataset().compute_digest(); }

 private:
  StepBatch load(int64_t number) const;

  Communicator& communicator_;
  LossCount count_loss_items_;
  Loader loader_;
  bool has_lengths_;  // whether examples have different lengths
  // Declared last, so that the thread of the queue ends before the members that it uses are destroyed.
  std::unique_ptr<PrefetchQueue<StepBatch>> queue_;
};

// Returns the data set for training. Before, checks the files of the evaluation data, and throws ConfigError
// if data.batch_size is not divisible by the number of processes, unless data.batch_tokens limits the
// batches.
std::shared_ptr<const Dataset> open_training_set(const Config& config, const TaskEnvironment& environment);

// Returns a split of the data set in the config. `split` and `limit` are those of EvaluationOptions.
std::shared_ptr<const Dataset> open_evaluation_set(Config config, const TaskEnvironment& environment,
                                                   std::shared_ptr<const Tokenizer> tokenizer,
                                                   const std::string& split, std::optional<int64_t> limit);

// Returns options.batch_size or, if it is 0, the size in the config.
int64_t choose_batch_size(const Config& config, const EvaluationOptions& options);

// An evaluation of the examples of a data set. Sets the split and the seconds of the result of `evaluate`
// and, if `evaluate` has not set it, the number of examples.
class DatasetEvaluator : public Evaluator {
 public:
  using Function = std::function<TaskEvaluation(const Dataset&, const StopCheck&)>;

  DatasetEvaluator(std::shared_ptr<const Dataset> dataset, Function evaluate)
      : dataset_(std::move(dataset)), evaluate_(std::move(evaluate)) {}

  int64_t count_examples() const override { return dataset_->size(); }
  std::string compute_digest() const override { return dataset_->compute_digest(); }
  TaskEvaluation evaluate(const StopCheck& stop) const override;

 private:
  std::shared_ptr<const Dataset> dataset_;
  Function evaluate_;
};

}  // namespace tapeformer
