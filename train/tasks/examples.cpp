#include "train/tasks/examples.h"

#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/dataset_batches.h"

namespace tapeformer {
namespace {

TaskEvaluation describe(const std::vector<std::pair<std::string, double>>& scores) {
  TaskEvaluation result{.selection_metric = scores.front().second};
  for (const auto& [name, score] : scores) {
    const bool is_loss = result.results.empty();
    result.metrics.emplace_back(is_loss ? "loss_nats" : name, score);
    result.results.emplace_back(name, score);
    result.summary += concat_text(is_loss ? "" : ", ", name, " ", score);
  }
  return result;
}

}  // namespace

ExampleTask::ExampleTask(const Config& config, const TaskEnvironment& environment)
    : Task(config), environment_(environment) {
  const auto dataset = open_training_set(config, environment);
  batches_ = std::make_unique<DatasetBatches>(config, dataset, environment.processes, [](const Batch& batch) {
    return static_cast<double>(batch.inputs().size(0));
  });
  model_ = make_example_model(config, dataset->info(), environment.device);
}

ExampleTask::ExampleTask(const Config& config, const TaskEnvironment& environment,
                         const TrainingState& /*state*/, const std::string& /*state_path*/)
    : Task(config),
      environment_(environment),
      model_(make_example_model(config, get_dataset_info(config), environment.device)) {}

std::unique_ptr<Evaluator> ExampleTask::open_evaluation(const EvaluationOptions& options) const {
  const int64_t batch_size = choose_batch_size(config(), options);
  return std::make_unique<DatasetEvaluator>(
      open_evaluation_set(config(), environment_, nullptr, options.split, options.limit),
      [this, batch_size, seed = options.seed](const Dataset& dataset, const StopCheck& stop) {
        return describe(evaluate(*model_, dataset, batch_size, 0, seed, stop, environment_.processes));
      });
}

BatchLoss ExampleTask::compute_loss(const StepBatch& batch, const ForwardContext& context) {
  const Batch& examples = batch.examples;
  return {model_->compute_loss(examples, context), examples.inputs().size(0) * examples.inputs().size(1)};
}

}  // namespace tapeformer
