// The task of speech models: training with the CTC loss, and evaluation by the phone error rate.
#pragma once

#include <memory>

#include "models/speech/model.h"
#include "train/checkpoint/state.h"
#include "train/tasks/speech/description.h"
#include "train/tasks/task.h"

namespace tapeformer {

class SpeechTask final : public Task {
 public:
  SpeechTask(const Config& config, const TaskEnvironment& environment);
  SpeechTask(const Config& config, const TaskEnvironment& environment, const TrainingState& state,
             const std::string& state_path);

  std::string subject() const override { return "speech"; }
  SpeechModel& model() const override { return *model_; }
  const SpeechMetadata& metadata() const { return metadata_; }

  std::string metadata_json() const override { return to_json(metadata_); }
  std::vector<std::string> list_token_modules() const override { return {"head"}; }
  static std::vector<SubjectOptions> list_evaluation_options();
  std::unique_ptr<Evaluator> open_evaluation(const EvaluationOptions& options) const override;
  BatchLoss compute_loss(const StepBatch& batch, const ForwardContext& context) override;
  bool reports_epochs() const override { return true; }
  const char* speed_unit() const override { return "frames"; }

 private:
  TaskEnvironment environment_;
  SpeechMetadata metadata_;
  std::shared_ptr<SpeechModel> model_;
};

}  // namespace tapeformer
