// Checkpoints of a run directory:
//
//   checkpoints/step-00001200/   model.safetensors, optimizer.safetensors, state.json, config.toml
//   checkpoints/latest, best     symlinks to such folders
//
// A checkpoint appears complete or not at all: it is written into a temporary folder, synced and renamed. The
// symlinks are replaced by rename. After a crash of the process or the machine, `latest` points to a complete
// checkpoint. A failed save does not change earlier checkpoints. Only one process may write to a run
// directory at a time. Functions throw CheckpointError, or its subclass CheckpointWriteError if a checkpoint
// cannot be written. The message names the file.
//
// state.json contains the size and CRC-32 of each file, and loading verifies the files that it reads. Files
// are never written through symbolic links: `checkpoints` must be a folder, and the links `latest` and `best`
// must contain the name of a folder in `checkpoints`. The path of the run directory may contain links.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/state.h"

namespace tapeformer {

using NamedTensorList = std::vector<std::pair<std::string, Tensor>>;

// The name of the folder of checkpoints in a run directory, and the name of the config file in a run
// directory and in a checkpoint folder.
inline constexpr char kCheckpointFolderName[] = "checkpoints", kConfigFileName[] = "config.toml";

struct CheckpointContents {
  std::map<std::string, Tensor> model_tensors;
  std::map<std::string, Tensor> optimizer_tensors;
  TrainingState state;  // save_checkpoint fills in the checksums
  std::string config_toml;
};

// Writes the checkpoint of step `contents.state.step`, points the link `latest` to the checkpoint, and
// returns the folder of the checkpoint. Replaces a checkpoint of the same step. Throws CheckpointWriteError
// if the checkpoint cannot be written.
std::string save_checkpoint(const std::string& run_dir, const CheckpointContents& contents);

// Replaces the state of the saved checkpoint of step `state.step`. Keeps the checksums of the other files.
// Throws CheckpointError if there is no such checkpoint.
void replace_checkpoint_state(const std::string& run_dir, TrainingState state);

// Points the link `best` to the saved checkpoint of a step. Throws CheckpointError if there is no such
// checkpoint.
void mark_best_checkpoint(const std::string& run_dir, int64_t step);

// Removes all checkpoints except the `keep_last` newest and the checkpoints that `latest` and `best` point
// to.
void prune_checkpoints(const std::string& run_dir, int64_t keep_last);

// Removes the unfinished checkpoints and files that a killed process has left in the run directory and in its
// folder `checkpoints`. Must be called before the first save.
void remove_unfinished_checkpoints(const std::string& run_dir);

// Returns the name of the folder of the checkpoint of a step, for example "step-00001200".
std::string format_step_name(int64_t step);

// Returns the steps of the complete checkpoints in ascending order.
std::vector<int64_t> list_checkpoint_steps(const std::string& run_dir);

// Returns the checkpoint folder that `best` or `latest` of a run directory points to, or std::nullopt if the
// link or the folder does not exist. Throws CheckpointError if the target of the link is not the name of a
// folder in checkpoints/.
std::optional<std::string> resolve_checkpoint_link(const std::string& run_dir, const std::string& link);

// Returns the canonical path of a checkpoint folder. `path` is a checkpoint folder or a run directory. For a
// run directory, returns the first of these folders that exists:
// - the target of the link `best`, if `prefer_best` is true
// - the target of the link `latest`
// - the newest checkpoint
//
// The returned path contains no symlinks, so the path remains valid when a training run replaces the links.
// Throws CheckpointError if there is no checkpoint.
std::string find_checkpoint(const std::string& path, bool prefer_best);

// A reader of a checkpoint folder.
class Checkpoint {
 public:
  explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string config_path() const { return file_path(kConfigFileName); }
  std::string state_path() const { return file_path("state.json"); }
  // Reads state.json and checks the type and range of each entry. Does not verify the checksum of the
  // file; load_model() and load_optimizer() verify it.
  TrainingState read_state() const;
  // Returns the checksum of model.safetensors in state.json.
  Checksum read_model_checksum() const;
  // Verifies the checksums of state.json and config.toml. config.toml must be a regular file.
  void verify_config_checksum() const;
  // Throws CheckpointError if state.json or model.safetensors does not match its checksum. Reads the whole
  // file.
  void verify_model_checksum() const;
  // Opens model.safetensors and checks its header, so that sizes can be compared before a model is built.
  SafetensorsFile open_model_file() const;
  // load_model() copies the weights into the tensors in `expected`, and load_optimizer() copies the optimizer
  // state. Both functions verify the checksums of state.json and of the loaded file. Both functions throw
  // CheckpointError if a checksum, a name, a shape or a dtype does not match.
  void load_model(const NamedTensorList& expected) const;
  void load_optimizer(const NamedTensorList& expected) const;

 private:
  std::string file_path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read_state_text() const;
  TrainingState parse_state(const std::string& text) const;
  TrainingState read_verified_state() const;  // also verifies the checksum of state.json
  Checksum find_checksum(const TrainingState& state, const std::string& name) const;
  void load_file(const std::string& name, const NamedTensorList& expected) const;

  std::string folder_;
};

}  // namespace tapeformer
