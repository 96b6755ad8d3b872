// A trained model from its run directory, for the commands that use one: the config and the weights of a
// checkpoint, and for speech its phones. No data file is needed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "models/autoregressive_model.h"
#include "train/config/config.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {

struct RunChoice {
  std::string path;                   // a run directory, its checkpoints folder, or one checkpoint
  std::string checkpoint = "latest";  // of a run directory: "latest", "best" or "step-…"
  std::vector<std::string> sets;      // table.key=value, over the run's own config
  Device device = kCpu;               // that gets the model
  ConfigUse use = ConfigUse::evaluation;
};

// Where a run's checkpoint is, and its config: what tells the kind of model.
struct FoundRun {
  std::filesystem::path checkpoint;
  Config config;   // with RunChoice::sets
  Config trained;  // without RunChoice::sets
  Device device = kCpu;

  bool is_speech() const { return config.model.type == "speech"; }
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

struct LoadedSpeechRun {
  Config config;
  SpeechDescription description;  // of the data that the model was trained on
  std::unique_ptr<SpeechModel> model;
  std::filesystem::path checkpoint;
};

// Throw CheckpointError if the path is no run or the checkpoint is damaged. Throw ConfigError if `sets` do
// not match the config or the weights, and if load_run gets a speech model or load_speech_run another model.
FoundRun find_run(const RunChoice& choice);
LoadedRun load_run(const FoundRun& found);
LoadedRun load_run(const RunChoice& choice);
LoadedSpeechRun load_speech_run(const FoundRun& found);

}  // namespace tapeformer
