#include "train/tasks/registry/make_task.h"

#include <algorithm>

#include "core/base/errors.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/examples.h"
#include "train/tasks/speech/task.h"

namespace tapeformer {
namespace {

struct TaskType {
  std::vector<std::string> model_types;
  std::unique_ptr<Task> (*make)(const Config&, const TaskEnvironment&);
  std::unique_ptr<Task> (*restore)(const Config&, const TaskEnvironment&, const TrainingState&,
                                   const std::string& state_path);
};

template <class T>
TaskType make_type(std::vector<std::string> model_types) {
  TaskType type;
  type.model_types = std::move(model_types);
  type.make = [](const Config& config, const TaskEnvironment& environment) -> std::unique_ptr<Task> {
    return std::make_unique<T>(config, environment);
  };
  type.restore = [](const Config& config, const TaskEnvironment& environment, const TrainingState& state,
                    const std::string& path) -> std::unique_ptr<Task> {
    return std::make_unique<T>(config, environment, state, path);
  };
  return type;
}

const TaskType& find_type(const std::string& model_type) {
  static const std::vector<TaskType> types = {make_type<AutoregressiveTask>({"image", "sequence"}),
                                              make_type<ExampleTask>({"classification", "set"}),
                                              make_type<SpeechTask>({"speech"})};
  for (const TaskType& type : types)
    if (std::find(type.model_types.begin(), type.model_types.end(), model_type) != type.model_types.end())
      return type;
  throw ConfigError("model.type = \"" + model_type + "\" has no task");
}

}  // namespace

std::unique_ptr<Task> make_task(const Config& config, const TaskEnvironment& environment) {
  return find_type(config.model.type).make(config, environment);
}

std::unique_ptr<Task> restore_task(const Config& config, const TaskEnvironment& environment,
                                   const TrainingState& state, const std::string& state_path) {
  return find_type(config.model.type).restore(config, environment, state, state_path);
}

}  // namespace tapeformer
