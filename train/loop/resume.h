// Functions that start a new run in an empty run directory, or resume a run from its last checkpoint.
#pragma once

#include <optional>
#include <string>

#include "train/checkpoint/run_directory.h"
#include "train/checkpoint/state.h"
#include "train/config/config.h"
#include "train/optimizer.h"
#include "train/tasks/task.h"

namespace tapeformer {

// Returns Task::metadata_json(). Throws DataError if the text is not valid UTF-8.
std::string get_checked_metadata_json(const Task& task);

// Prepares the directory of a new run. Throws RunDirectoryError if the directory is not empty.
void prepare_new_run(const RunDirectory& directory, const Config& config);

// Loads the weights and the optimizer state of the last checkpoint, and returns its TrainingState. If there
// is no checkpoint, starts a new run and returns std::nullopt. `metadata_json` is
// get_checked_metadata_json(task), and `total_steps` is only logged.
//
// Throws RunDirectoryError if `config` and the config of the checkpoint differ in a key that must not change,
// and ConfigError if the metadata differ. Throws CheckpointError if the checkpoint is damaged, and
// DivergenceError if its tensors are not finite.
std::optional<TrainingState> resume_run(const RunDirectory& directory, const Config& config, const Task& task,
                                        const std::string& metadata_json, int64_t total_steps,
                                        Optimizer& optimizer);

}  // namespace tapeformer
