// The tasks of the model types.
#pragma once

#include <memory>
#include <string>

#include "train/checkpoint/state.h"
#include "train/tasks/task.h"

namespace tapeformer {

// Loads the training data and makes the task of model.type. Throws ConfigError if the config does not match
// the data, and DataError if files are missing or invalid.
std::unique_ptr<Task> make_task(const Config& config, const TaskEnvironment& environment);

// Makes the task of model.type with the metadata in the state of a checkpoint, without data. The weights of
// the model are initialized and not loaded. `state_path` is the path of the state, for error messages. Throws
// CheckpointError if the metadata are invalid.
std::unique_ptr<Task> restore_task(const Config& config, const TaskEnvironment& environment,
                                   const TrainingState& state, const std::string& state_path);

}  // namespace tapeformer
