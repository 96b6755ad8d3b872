// The file state.json of a checkpoint. The file contains the state of a run and the checksums of the other
// files in the checkpoint. The tensors and the config are in these other files.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "data/files/checksum.h"
#include "train/optimization/schedule.h"

namespace tapeformer {

// The checkpoint whose weights the adapters of a run extend. `relative_folder` is relative to the directory
// of the run, and `checksum` is that of its model.safetensors.
struct BaseReference {
  std::string folder, relative_folder;
  Checksum checksum;
};

struct TrainingState {
  int64_t step = 0;
  // Whether scripts/convert.py or an import wrote the checkpoint. Such a checkpoint has no optimizer state. A
  // checkpoint of scripts/convert.py has no task_json.
  bool is_converted = false;
  int64_t last_evaluation_step = -1;  // step of the last evaluation; -1: no evaluation
  int64_t optimizer_step_count = 0;
  std::optional<double> best_loss = {};  // lowest selection metric of all evaluations (train/tasks/task.h)
  double training_seconds = 0;           // training time in seconds
  // Wall-clock and processor time of the current epoch, and wall-clock time of the last complete epoch, in
  // seconds. The times are set only for tasks that report epochs.
  struct EpochTimes {
    double seconds = 0, cpu_seconds = 0, last_epoch_seconds = 0;
  };
  std::optional<EpochTimes> epoch_times = {};
  ScheduleState schedule_state = {};
  std::string task_json = {};              // JSON object of Task::metadata_json(); may be empty
  std::string training_data_digest = {};   // BatchSource::compute_digest(); may be empty
  std::optional<BaseReference> base = {};  // of a run with adapters
  std::optional<Checksum> teacher = {};    // of the weights of distill.teacher
  // The checksums of the other files of the checkpoint, by file name.
  std::map<std::string, Checksum> checksums = {};
};

// Returns the text of state.json. The last entry is a checksum of the text before this entry.
std::string to_json(const TrainingState& state);

// Parses state.json and checks the type and range of each entry. Throws CheckpointError if an entry is
// missing or invalid. The message names the file and the key of the entry. Callers call
// verify_state_checksum() after parse_training_state(), because an error about an entry is more specific than
// an error about the checksum.
TrainingState parse_training_state(const std::string& text, const std::string& path);

// Throws CheckpointError if `text` does not match the checksum at its end.
void verify_state_checksum(const std::string& text, const std::string& path);

}  // namespace tapeformer
