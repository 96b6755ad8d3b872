// A trained model from its run directory, for the commands that use one: the config and the weights of a
// checkpoint. No data file is needed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "models/autoregressive_model.h"
#include "train/config.h"

namespace tapeformer {

struct RunChoice {
  std::string path;                   // a run directory, its checkpoints folder, or one checkpoint
  std::string checkpoint = "latest";  // of a run directory: "latest", "best" or "step-…"
  std::vector<std::string> sets;      // table.key=value, over the run's own config
};

struct LoadedRun {
  Config config;
  DatasetInfo data;  // sizes of what the model was trained on
  std::unique_ptr<AutoregressiveModel> model;
  std::filesystem::path checkpoint;  // the folder that was read

  bool draws_images() const { return data.channels > 0; }
  // Where the run keeps pictures; the working directory for a checkpoint outside of a run directory.
  std::filesystem::path samples_folder() const;
};

// Throws CheckpointError for what is no run or cannot be trusted, ConfigError for `sets` that do not fit.
LoadedRun load_run(const RunChoice& choice);

}  // namespace tapeformer
