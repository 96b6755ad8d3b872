// A writer of the checkpoints of a run in progress.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "models/layers/module.h"
#include "train/checkpoint/checkpoint.h"
#include "train/config/config.h"
#include "train/optimization/optimizer.h"
#include "train/tasks/task.h"

namespace tapeformer {

// Returns the tensors of optimizer.state() and task.state(), which a checkpoint stores in
// optimizer.safetensors. The names of the tensors of task.state() get the prefix "state.".
NamedTensors collect_training_state_tensors(const Optimizer& optimizer, const Task& task);

class CheckpointWriter {
 public:
  using WarningFunction = std::function<void(const std::string&)>;

  // The task and the optimizer must outlive the writer.
  CheckpointWriter(std::filesystem::path run_dir, const Config& config, const Task& task,
                   Optimizer& optimizer);

  // Saves a checkpoint and removes old checkpoints. If the optimizer keeps a moving average of the weights,
  // the model file contains the average, and the optimizer file contains the current weights.
  //
  // If the checkpoint cannot be saved, earlier checkpoints stay intact. In this case, save() throws
  // CheckpointError if `must_succeed` is true, and calls `warn` and returns false if `must_succeed` is false.
  // If old checkpoints cannot be removed, save() calls `warn` and returns true.
  bool save(const TrainingState& state, bool must_succeed, const WarningFunction& warn);

  // Replaces the TrainingState in the checkpoint of `state.step`. If `is_best` is true, also points the link
  // `best` to this checkpoint and removes old checkpoints. record_evaluation() must be called after an
  // evaluation. If a file cannot be written, calls `warn`. If the TrainingState is not replaced, a resumed
  // run repeats the evaluation.
  void record_evaluation(const TrainingState& state, bool is_best, const WarningFunction& warn);

 private:
  void prune_old_checkpoints() const;

  std::string run_dir_, config_toml_;
  int64_t keep_last_;
  const Task& task_;
  Optimizer& optimizer_;
};

}  // namespace tapeformer
