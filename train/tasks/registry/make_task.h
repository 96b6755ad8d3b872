// The tasks of the model types.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/checkpoint/state.h"
#include "train/tasks/task.h"

namespace tapeformer {

// A class of tasks, with constructors as those of ExampleTask, and the types of its models.
struct TaskType {
  std::vector<std::string> model_types;
  std::function<std::unique_ptr<Task>(const Config&, const TaskEnvironment&)> make;
  std::function<std::unique_ptr<Task>(const Config&, const TaskEnvironment&, const TrainingState&,
                                      const std::string& state_path)>
      restore;
  std::vector<SubjectOptions> evaluation_options = {};  // T::list_evaluation_options()
};

template <class T>
TaskType make_task_type(std::vector<std::string> model_types) {
  return {std::move(model_types), [](const auto&... arguments) { return std::make_unique<T>(arguments...); },
          [](const auto&... arguments) { return std::make_unique<T>(arguments...); },
          T::list_evaluation_options()};
}

// Adds the task of model types that register_model_kind() has added.
void register_task_type(TaskType type);

// Returns the options of the evaluations of all types of tasks.
std::vector<SubjectOptions> list_evaluation_options();

// Loads the training data and makes the task of model.type. Throws ConfigError if the config does not match
// the data, and DataError if files are missing or invalid.
std::unique_ptr<Task> make_task(const Config& config, const TaskEnvironment& environment);

// Makes the task of model.type with the metadata in the state of a checkpoint, without data. The weights of
// the model are initialized and not loaded. `state_path` is the path of the state, for error messages. Throws
// CheckpointError if the metadata are invalid.
std::unique_ptr<Task> restore_task(const Config& config, const TaskEnvironment& environment,
                                   const TrainingState& state, const std::string& state_path);

}  // namespace tapeformer
