// The task of autoregressive models of images, texts and sequences of symbols.
#pragma once

#include <memory>

#include "models/autoregressive_model.h"
#include "train/checkpoint/state.h"
#include "train/tasks/task.h"

namespace tapeformer {

class AutoregressiveTask final : public Task {
 public:
  AutoregressiveTask(const Config& config, const TaskEnvironment& environment);
  AutoregressiveTask(const Config& config, const TaskEnvironment& environment, const TrainingState& state,
                     const std::string& state_path);

  std::string subject() const override;
  AutoregressiveModel& model() const override { return *model_; }
  // Returns the vocabulary and the sizes of the examples.
  const DatasetInfo& dataset_info() const { return dataset_info_; }
  // Returns the tokenizer of a model of text, and null for other models.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  // Returns a part of the data set; `split` and `limit` are those of EvaluationOptions.
  std::shared_ptr<const Dataset> open_split(const std::string& split, std::optional<int64_t> limit) const;

  NamedTensors state() const override { return memory_ ? memory_->state() : NamedTensors(); }
  std::string metadata_json() const override;
  std::vector<std::string> list_token_modules() const override { return {"value_embedding", "predictor"}; }
  static std::vector<SubjectOptions> list_evaluation_options();
  std::unique_ptr<Evaluator> open_evaluation(const EvaluationOptions& options) const override;
  std::optional<BatchLayout> make_graph_layout(const StepBatch& batch) const override;
  void set_teacher(std::shared_ptr<const Task> teacher) override;
  BatchLoss compute_loss(const StepBatch& batch, const ForwardContext& context) override;
  void add_metrics(double loss, MetricRecord& record) const override;
  double compute_progress_bits_per_dim(double loss) const override;

 private:
  TaskEnvironment environment_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  DatasetInfo dataset_info_;
  std::unique_ptr<AutoregressiveModel> model_;
  std::shared_ptr<const AutoregressiveTask> teacher_;  // null if the training learns from the data
  std::unique_ptr<SegmentMemory> memory_;              // null if the model has no segment memory
};

}  // namespace tapeformer
