// Loading of trained models. Loading needs no data files, except for the checkpoint of a language model that
// was converted from another program and has no tokenizer: load_task() then makes the tokenizer that the
// config describes. The adapters of a run are merged into the weights of its base.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "train/tasks/task.h"

namespace tapeformer {

struct RunChoice {
  std::string path;  // a run directory, its checkpoints folder, or a checkpoint folder
  // Checkpoint of a run directory: "latest", "best", "step-…" or the number of a step.
  std::string checkpoint_name = "latest";
  std::vector<std::string> config_settings = {};  // "table.key=value"; overrides the config of the run
  Device device = kCpu;                           // device of the model
  ConfigPurpose purpose = ConfigPurpose::evaluation;
  DataAccessOptions data = {};  // for evaluations, and for checkpoints without a tokenizer
};

struct LoadedTask {
  std::unique_ptr<Task> task;
  std::filesystem::path checkpoint_folder;
  int64_t step = 0;  // training step of the checkpoint

  const Config& config() const { return task->config(); }
  // Returns the task as a T, for example an AutoregressiveTask or a TranslationTask. Throws ConfigError if
  // the task is not a T.
  template <class T>
  const T& as() const {
    if (const auto* const result = dynamic_cast<const T*>(task.get())) return *result;
    throw ConfigError(checkpoint_folder.string() +
                      ": the model has another type than the program expects: " + config().model.type);
  }
  // Returns the folder of generated images in the run directory, or "" if there is no run directory.
  std::filesystem::path samples_folder() const;
};

// Throws CheckpointError if RunChoice::path contains no checkpoint or if the checkpoint is damaged. Throws
// ConfigError if RunChoice::config_settings are invalid, do not fit the shapes of the weights, or make them
// compute another function. Throws DivergenceError if a weight is not finite.
LoadedTask load_task(const RunChoice& choice);

}  // namespace tapeformer
