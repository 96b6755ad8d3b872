// state.json of a checkpoint: what a resumed run needs besides tensors and config, and the checksums of the
// files beside it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "data/checksum.h"
#include "train/schedule.h"

namespace tapeformer {

struct TrainingState {
  int64_t step = 0;
  int64_t evaluated_step = -1;  // of the last evaluation; -1: none
  int64_t optimizer_steps = 0;
  std::optional<double> best_loss = {};  // lowest criterion of an evaluation
  double seconds = 0;                    // of training
  // Of the epoch under way, and of the last whole one; only for tasks that report epochs.
  struct Epochs {
    double seconds = 0, cpu_seconds = 0, last_seconds = 0;
  };
  std::optional<Epochs> epochs = {};
  Schedule::State schedule = {};
  std::string task = {};  // a JSON object, see Task::description(); empty: none
  // By name, of the files in the same folder; none in checkpoints that were written without checksums.
  std::map<std::string, Checksum> files = {};
};

// The text of state.json. Its last entry is a checksum of the text before the entry.
std::string to_json(const TrainingState& state);

// Reads every entry and checks type and range. Throws CheckpointError "PATH: key: expected …, got …". Does
// not check the checksum of the text, so that a wrong entry is named.
TrainingState parse_training_state(const std::string& text, const std::string& path);

// Throws CheckpointError if the text does not match the checksum in it. A text with neither checksums of
// files nor one of its own passes.
void check_state_text(const std::string& text, const TrainingState& state, const std::string& path);

}  // namespace tapeformer
