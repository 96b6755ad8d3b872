// Checkpoints of a run directory:
//
//   checkpoints/step-00001200/   model.safetensors, optimizer.safetensors, state.json, config.toml
//   checkpoints/latest, best     symlinks to such folders
//
// A checkpoint appears whole or not at all: it is written into a temporary folder, synced and renamed; the
// symlinks are replaced by rename. Whenever the process or the machine dies, `latest` leads to a whole
// checkpoint. One process writes to a run directory at a time. Every failure is a CheckpointError that names
// the file; a failed save leaves all earlier checkpoints as they were.
//
// state.json holds the size and CRC-32 of every file, and loading verifies the files that it reads. Files are
// never written through symbolic links: `checkpoints` must be a folder, and `latest` and `best` must hold the
// name of a folder in it. The run directory itself may be reached through links.
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

// Names of the folder of checkpoints in a run directory, and of the config in a run or a checkpoint.
inline constexpr char kCheckpoints[] = "checkpoints", kConfigFile[] = "config.toml";

struct CheckpointContents {
  std::map<std::string, Tensor> model;
  std::map<std::string, Tensor> optimizer;
  TrainingState state;  // save_checkpoint fills in the checksums
  std::string config_toml;
};

// Writes the checkpoint of step `contents.state.step`, points `latest` to it and returns its folder. Replaces
// a checkpoint of the same step.
std::string save_checkpoint(const std::string& run_dir, const CheckpointContents& contents);

// Replaces the state of the saved checkpoint of step `state.step`. Keeps the checksums of the other files.
void replace_checkpoint_state(const std::string& run_dir, TrainingState state);

// Points `best` to the saved checkpoint of a step.
void mark_best_checkpoint(const std::string& run_dir, int64_t step);

// Removes all but the `keep_last` newest checkpoints and those that `latest` and `best` lead to.
void prune_checkpoints(const std::string& run_dir, int64_t keep_last);

// Removes unfinished files of a killed process from the run directory and from checkpoints/. Call it before
// the first save.
void remove_unfinished_checkpoints(const std::string& run_dir);

// Steps of the whole checkpoints, ascending.
std::vector<int64_t> checkpoint_steps(const std::string& run_dir);

// Returns the checkpoint folder that `best` or `latest` of a run directory points to, or nothing if the link
// or the folder does not exist. Throws CheckpointError if the link holds anything but the name of a folder in
// checkpoints/.
std::optional<std::string> linked_checkpoint(const std::string& run_dir, const std::string& link);

// The folder that a user means by a path: a checkpoint folder itself, or of a run directory the one that
// `best` (if preferred and there) or `latest` leads to; without symlinks, as after a copy, the newest. The
// result is free of symlinks, so it stays the same checkpoint while a training run goes on.
std::string find_checkpoint(const std::string& path, bool prefer_best);

// A checkpoint folder, opened for reading. Checkpoints without checksums load with a warning.
class Checkpoint {
 public:
  explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string config_path() const { return path_of(kConfigFile); }
  std::string state_path() const { return path_of("state.json"); }
  // Reads state.json and checks type and range of each entry. load_model and load_optimizer also verify the
  // checksum of its text.
  TrainingState state() const;
  // Verifies the checksum of config.toml, which must be a regular file.
  void check_config() const;
  // Opens model.safetensors and checks its header, so that sizes can be compared before a model is built.
  SafetensorsFile model_file() const;
  // Read a file into tensors of the same names and shapes (see SafetensorsFile::load_into) and verify its
  // checksum.
  void load_model(const NamedTensorList& expected) const;
  void load_optimizer(const NamedTensorList& expected) const;

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  std::string state_text() const;
  TrainingState parsed_state(const std::string& text) const;
  std::optional<Checksum> checksum_of_file(const TrainingState& state, const std::string& name) const;
  void load(const std::string& name, const NamedTensorList& expected) const;

  std::string folder_;
};

}  // namespace tapeformer
