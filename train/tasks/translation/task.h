// The task of models that translate.
#pragma once

#include <memory>

#include "data/translation/translation_dataset.h"
#include "models/translation/model.h"
#include "train/checkpoint/state.h"
#include "train/tasks/task.h"

namespace tapeformer {

class TranslationTask final : public Task {
 public:
  TranslationTask(const Config& config, const TaskEnvironment& environment);
  TranslationTask(const Config& config, const TaskEnvironment& environment, const TrainingState& state,
                  const std::string& state_path);

  std::string subject() const override { return "translations"; }
  TranslationModel& model() const override { return *model_; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }

  std::string metadata_json() const override;
  std::vector<std::string> list_token_modules() const override {
    return {"embedding", "source_embedding", "target_embedding", "predictor"};
  }
  static std::vector<SubjectOptions> list_evaluation_options();
  std::unique_ptr<Evaluator> open_evaluation(const EvaluationOptions& options) const override;
  BatchLoss compute_loss(const StepBatch& batch, const ForwardContext& context) override;

 private:
  void make_model(const DatasetInfo& data);

  TaskEnvironment environment_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TranslationModel> model_;
};

}  // namespace tapeformer
