// The task of models that predict one result for each example: classifiers and Set Transformers.
#pragma once

#include <memory>

#include "models/example_model.h"
#include "train/checkpoint/state.h"
#include "train/tasks/task.h"

namespace tapeformer {

class ExampleTask final : public Task {
 public:
  ExampleTask(const Config& config, const TaskEnvironment& environment);
  ExampleTask(const Config& config, const TaskEnvironment& environment, const TrainingState& state,
              const std::string& state_path);

  std::string subject() const override { return config().model.type == "set" ? "sets" : "classes"; }
  ExampleModel& model() const override { return *model_; }
  std::unique_ptr<Evaluator> open_evaluation(const EvaluationOptions& options) const override;
  BatchLoss compute_loss(const StepBatch& batch, const ForwardContext& context) override;

 private:
  TaskEnvironment environment_;
  std::unique_ptr<ExampleModel> model_;
};

}  // namespace tapeformer
