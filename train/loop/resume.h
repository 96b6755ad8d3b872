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

// Loads the last checkpoint into `task` and `optimizer`, and returns the TrainingState of the checkpoint. If
// the run directory contains no checkpoint, prepares the directory for a new run and returns std::nullopt.
// `metadata_json` must be the result of get_checked_metadata_json(task). `total_steps` is used only in a log
// message.
//
// Writes a warning if the data differ from the data at the checkpoint.
//
// Throws RunDirectoryError if `config` and the config of the checkpoint differ in a key that must not change
// on resume. Throws ConfigError if `metadata_json` differs from the metadata in the checkpoint. Throws
// CheckpointError if the checkpoint is damaged, and DivergenceError if a tensor of the checkpoint is not
// finite.
std::optional<TrainingState> resume_run(const RunDirectory& directory, const Config& config, const Task& task,
                                        const std::string& metadata_json, int64_t total_steps,
                                        Optimizer& optimizer);

}  // namespace tapeformer
