// The task of models that predict one result for each example: classifiers and Set Transformers.
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/dataset_task.h"

namespace tapeformer {
namespace {

class ExampleTask final : public DatasetTask {
 public:
  ExampleTask(const Config& config, const std::string& data_dir, Device device, Communicator& processes)
      : DatasetTask(config, data_dir, processes,
                    [](const Batch& batch) { return static_cast<double>(batch.inputs().size(0)); }),
        model_(make_example_model(config, training_set().info(), device)) {}

  const Module& model() const override { return *model_; }

  // Returns std::nullopt, because the host reads the lengths of the sequences in each step. A CUDA graph does
  // not capture computations on the host.
  std::optional<BatchLayout> fetch_batch(int64_t number, int64_t slot) override {
    batches_[slot] = next_batch(number, slot);
    return std::nullopt;
  }
  BatchLoss compute_loss(int64_t slot, const ForwardContext& context) override {
    const Batch& batch = batches_[slot];
    return {model_->compute_loss(batch, context), batch.inputs().size(0) * batch.inputs().size(1)};
  }

  TaskEvaluation evaluate(const StopCheck& stop) const override {
    const ExampleEvaluation e =
        tapeformer::evaluate(*model_, evaluation_set(), evaluation_batch_size(), 0, 0, stop, communicator());
    TaskEvaluation result{.split = e.split,
                          .example_count = e.example_count,
                          .selection_metric = e.scores.front().second,
                          .seconds = e.seconds,
                          .metrics = {{"loss_nats", e.scores.front().second}},
                          .printed_results = {},
                          .summary = {}};
    for (size_t i = 0; i < e.scores.size(); ++i) {
      const auto& [name, score] = e.scores[i];
      if (i > 0) result.metrics.emplace_back(name, score);
      result.printed_results.emplace_back(name, score);
      result.summary += concat_text(i == 0 ? "" : ", ", name, " ", score);
    }
    result.metrics.emplace_back("examples", e.example_count);
    result.metrics.emplace_back("seconds", e.seconds);
    return result;
  }

 private:
  std::map<int64_t, Batch> batches_;  // indexed by slot
  std::unique_ptr<ExampleModel> model_;
};

}  // namespace

std::unique_ptr<Task> make_example_task(const Config& config, const DataAccessOptions& data, Device device,
                                        Communicator& processes) {
  return std::make_unique<ExampleTask>(config, data.data_dir, device, processes);
}

}  // namespace tapeformer
