// A writer of the checkpoints of a run in progress.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "models/layers/module.h"
#include "train/checkpoint/checkpoint.h"
#include "train/config/config.h"
#include "train/optimizer.h"
#include "train/tasks/task.h"

namespace tapeformer {

// Returns the tensors of the file optimizer.safetensors, which stores optimizer.state() and task.state().
// Adds the prefix "state." to the names of the tensors of task.state().
NamedTensors collect_training_state_tensors(const Optimizer& optimizer, const Task& task);

class CheckpointWriter {
 public:
  using WarningFunction = std::function<void(const std::string&)>;

  // The task and the optimizer must outlive the writer.
  CheckpointWriter(std::filesystem::path run_dir, const Config& config, const Task& task,
                   Optimizer& optimizer);

  // Saves a checkpoint and removes old checkpoints. If there is a moving average of the weights, the model
  // file contains the average, and the optimizer state contains the current weights. If saving fails, throws
  // CheckpointError if `must_succeed` is true, and otherwise calls `warn` and returns false. Earlier
  // checkpoints then stay intact.
  bool save(const TrainingState& state, bool must_succeed, const WarningFunction& warn);

  // Replaces the state in the checkpoint of `state.step` after an evaluation. If `is_best` is true, points
  // the link `best` to this checkpoint. If writing fails, calls `warn`. A resumed run then evaluates again.
  void record_evaluation(const TrainingState& state, bool is_best, const WarningFunction& warn);

 private:
  void prune_old_checkpoints() const;

  std::string run_dir_, config_toml_;
  int64_t keep_last_;
  const Task& task_;
  Optimizer& optimizer_;
};

}  // namespace tapeformer
