// Checkpoints of a run directory:
//
//   checkpoints/step-00001200/   model.safetensors, optimizer.safetensors, state.json, config.toml
//   checkpoints/latest, best     symlinks to such folders
//
// A checkpoint appears whole or not at all: it is written into a temporary folder, synced and renamed; the
// symlinks are replaced by rename. Whenever the process or the machine dies, `latest` leads to a whole
// checkpoint. One process writes to a run directory at a time. Every failure is a CheckpointError that names
// the file; a failed save leaves all earlier checkpoints as they were.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace tapeformer {

using NamedTensorList = std::vector<std::pair<std::string, Tensor>>;

struct CheckpointContents {
  std::map<std::string, Tensor> model;
  std::map<std::string, Tensor> optimizer;
  std::string state_json;
  std::string config_toml;
};

// Writes the checkpoint of a step, points `latest` to it and returns its folder. One of the same step is
// replaced.
std::string save_checkpoint(const std::string& run_dir, int64_t step, const CheckpointContents& contents);

// Points `best` to the saved checkpoint of a step.
void mark_best_checkpoint(const std::string& run_dir, int64_t step);

// Removes all but the `keep_last` newest checkpoints and those that `latest` and `best` lead to.
void prune_checkpoints(const std::string& run_dir, int64_t keep_last);

// Removes what a killed process left half-written; call it before the first save.
void remove_unfinished_checkpoints(const std::string& run_dir);

// Steps of the whole checkpoints, ascending.
std::vector<int64_t> checkpoint_steps(const std::string& run_dir);

// The folder that a user means by a path: a checkpoint folder itself, or of a run directory the one that
// `best` (if preferred and there) or `latest` leads to; without symlinks, as after a copy, the newest. The
// result is free of symlinks, so it stays the same checkpoint while a training run goes on.
std::string find_checkpoint(const std::string& path, bool prefer_best);

// One checkpoint folder for reading.
class Checkpoint {
 public:
  explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string config_path() const { return folder_ + "/config.toml"; }
  std::string state_json() const;
  // Into tensors of the same names and shapes; see SafetensorsFile::load_into.
  void load_model(const NamedTensorList& expected) const;
  void load_optimizer(const NamedTensorList& expected) const;

 private:
  std::string folder_;
};

}  // namespace tapeformer
