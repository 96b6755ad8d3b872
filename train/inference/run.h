// Loading of trained models: the config and the weights of a checkpoint, the tokenizer of a language model
// and the phones of a speech model. Loading needs no data files, except for the checkpoint of a language
// model that was converted from another program and has no tokenizer: load_run() then makes the tokenizer
// that the config describes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/make_dataset.h"
#include "models/autoregressive_model.h"
#include "models/example_model.h"
#include "train/config/config.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {

namespace cuda {
class ProductTuningScope;
}

struct RunChoice {
  std::string path;                        // a run directory, its checkpoints folder, or a checkpoint folder
  std::string checkpoint_name = "latest";  // checkpoint of a run directory: "latest", "best" or "step-…"
  std::vector<std::string> config_settings;  // "table.key=value"; overrides the config of the run
  Device device = kCpu;                      // device of the model
  ConfigPurpose purpose = ConfigPurpose::evaluation;
  std::string data_dir = {};  // directory of data sets, for checkpoints without a tokenizer
};

// The folder and the config of a checkpoint whose weights are not loaded yet.
struct FoundRun {
  std::filesystem::path checkpoint_folder;
  Config config;           // config of the training run, changed by RunChoice::config_settings
  Config training_config;  // config of the training run
  Device device = kCpu;
  std::string data_dir = {};  // RunChoice::data_dir

  bool is_speech() const { return config.model.type == "speech"; }
};

struct LoadedRun {
  // While the ProductTuningScope exists, matrix products use the fastest measured algorithms. The pointer is
  // null if algorithms are not measured.
  std::shared_ptr<cuda::ProductTuningScope> product_tuning_scope;
  Config config;
  DatasetInfo dataset_info;                    // vocabulary and example sizes of the training data
  std::shared_ptr<const Tokenizer> tokenizer;  // tokenizer of a language model; null for other models
  std::unique_ptr<AutoregressiveModel> model;
  std::filesystem::path checkpoint_folder;
  int64_t step = 0;  // training step of the checkpoint

  bool generates_images() const { return dataset_info.channels > 0; }
  // Returns the folder of generated images in the run directory, or "" if there is no run directory.
  std::filesystem::path samples_folder() const;
};

struct LoadedExampleRun {
  std::shared_ptr<cuda::ProductTuningScope> product_tuning_scope;
  Config config;
  std::unique_ptr<ExampleModel> model;
  std::filesystem::path checkpoint_folder;
};

struct LoadedSpeechRun {
  std::shared_ptr<cuda::ProductTuningScope> product_tuning_scope;
  Config config;
  SpeechMetadata metadata;
  std::unique_ptr<SpeechModel> model;
  std::filesystem::path checkpoint_folder;
};

// find_run() finds the checkpoint of a RunChoice. The other functions load the model of a checkpoint:
// load_speech_run() loads speech models, load_example_run() loads classifiers and Set Transformers, and
// load_run() loads all other models.
//
// Throws CheckpointError if RunChoice::path contains no checkpoint or if the checkpoint is damaged. Throws
// ConfigError if RunChoice::config_settings are invalid or do not match the weights, or if the function does
// not load models of the type in the config. Throws DivergenceError if a weight is not finite.
FoundRun find_run(const RunChoice& choice);
LoadedRun load_run(const FoundRun& found);
LoadedRun load_run(const RunChoice& choice);
LoadedExampleRun load_example_run(const FoundRun& found);
LoadedSpeechRun load_speech_run(const FoundRun& found);

}  // namespace tapeformer
