// File state.json of a checkpoint: the state of a run except its tensors and its config, and the checksums of
// the other files.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "data/files/checksum.h"
#include "train/schedule.h"

namespace tapeformer {

struct TrainingState {
  int64_t step = 0;
  int64_t evaluated_step = -1;  // step of the last evaluation; -1: no evaluation
  int64_t optimizer_steps = 0;
  std::optional<double> best_loss = {};  // lowest criterion of all evaluations
  double seconds = 0;                    // training time in seconds
  // Times of the current epoch, and of the last complete epoch. Only tasks that report epochs have them.
  struct Epochs {
    double seconds = 0, cpu_seconds = 0, last_seconds = 0;
  };
  std::optional<Epochs> epochs = {};
  Schedule::State schedule = {};
  std::string task = {};  // JSON object of Task::description(); may be empty
  // Checksums of the other files of the checkpoint, by name. Empty for checkpoints without checksums.
  std::map<std::string, Checksum> files = {};
};

// Returns the text of state.json. Its last entry is a checksum of the text before the entry.
std::string to_json(const TrainingState& state);

// Parses state.json and checks the type and range of each entry. Throws CheckpointError "PATH: key: expected
// …, got …". Does not verify the checksum of the text, so that the error names the wrong entry.
TrainingState parse_training_state(const std::string& text, const std::string& path);

// Throws CheckpointError if the text does not match the checksum in it. Accepts texts without checksums,
// which earlier versions wrote.
void check_state_text(const std::string& text, const TrainingState& state, const std::string& path);

}  // namespace tapeformer
