#include "train/tasks/registry/make_task.h"

#include <algorithm>

#include "core/base/errors.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/examples.h"
#include "train/tasks/speech/task.h"
#include "train/tasks/translation/task.h"

namespace tapeformer {
namespace {

std::vector<TaskType>& task_registry() {
  static auto& types = *new std::vector<TaskType>{make_task_type<AutoregressiveTask>({"image", "sequence"}),
                                                  make_task_type<ExampleTask>({"classification", "set"}),
                                                  make_task_type<SpeechTask>({"speech"}),
                                                  make_task_type<TranslationTask>({"translation"})};
  return types;
}

const TaskType& find_type(const std::string& model_type) {
  for (const TaskType& type : task_registry())
    if (std::find(type.model_types.begin(), type.model_types.end(), model_type) != type.model_types.end())
      return type;
  throw ConfigError("model.type = \"" + model_type + "\" has no task");
}

}  // namespace

void register_task_type(TaskType type) {
  for (const TaskType& other : task_registry())
    for (const std::string& name : other.model_types)
      if (std::find(type.model_types.begin(), type.model_types.end(), name) != type.model_types.end())
        throw std::invalid_argument("the model type \"" + name + "\" already has a task");
  task_registry().push_back(std::move(type));
}

std::vector<SubjectOptions> list_evaluation_options() {
  std::vector<SubjectOptions> all;
  for (const TaskType& type : task_registry())
    all.insert(all.end(), type.evaluation_options.begin(), type.evaluation_options.end());
  return all;
}

std::unique_ptr<Task> make_task(const Config& config, const TaskEnvironment& environment) {
  return find_type(config.model.type).make(config, environment);
}

std::unique_ptr<Task> restore_task(const Config& config, const TaskEnvironment& environment,
                                   const TrainingState& state, const std::string& state_path) {
  return find_type(config.model.type).restore(config, environment, state, state_path);
}

}  // namespace tapeformer
