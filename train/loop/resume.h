// Functions that start a new run in an empty run directory, or resume a run from its last checkpoint.
#pragma once

#include <optional>
#include <string>

#include "train/checkpoint/run_directory.h"
#include "train/checkpoint/state.h"
#include "train/config/config.h"
#include "train/optimization/optimizer.h"
#include "train/tasks/task.h"

namespace tapeformer {

// Returns Task::metadata_json(). Throws DataError if the text is not valid UTF-8.
std::string get_checked_metadata_json(const Task& task);

// Prepares the directory of a new run. Throws RunDirectoryError if the directory is not empty.
void prepare_new_run(const RunDirectory& directory, const Config& config);

// The metadata of a task and the digest of its training data. resume_run() compares both with the values in
// the checkpoint.
struct TaskDataDescription {
  std::string metadata_json;             // get_checked_metadata_json()
  std::string training_digest;           // BatchSource::compute_digest()
  std::optional<Checksum> teacher = {};  // of the weights of distill.teacher
};

// Loads the last checkpoint into `task` and `optimizer`, and returns the TrainingState of the checkpoint. If
// the run directory contains no checkpoint, prepares the directory for a new run and returns std::nullopt.
// `total_steps` is used only in a log message.
//
// Logs a warning if the digest of the training data differs from the digest in the checkpoint.
//
// Throws RunDirectoryError if `config` and the config of the checkpoint differ in a key that must not change
// on resume. Throws ConfigError if `data.metadata_json` or the teacher differs from that of the checkpoint.
// Throws CheckpointError if the checkpoint is damaged, and DivergenceError if a tensor of the checkpoint is
// not finite.
std::optional<TrainingState> resume_run(const RunDirectory& directory, const Config& config, const Task& task,
                                        const TaskDataDescription& data, int64_t total_steps,
                                        Optimizer& optimizer);

}  // namespace tapeformer
