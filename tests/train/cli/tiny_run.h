// Configs of small models, and functions that write run directories with untrained models.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "train/build.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/safetensors.h"

namespace tapeformer::test {

// Returns a config for a data set of images of 28 x 28 pixels, which are reduced to 7 x 7 pixels.
inline Config make_tiny_image_config(const std::string& dataset = "fashion-mnist") {
  Config config;
  config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
  config.data = {.dataset = dataset, .batch_size = 4, .options = {{"downscale", 4}}};
  config.model.options.set("layers", 1);
  config.model.options.set("heads", 2);
  config.model.options.set("head_dim", 8);
  config.model.options.set("feedforward", 16);
  config.model.options.set("mixtures", 2);
  config.attention = {{"linear", find_attention_kind("linear").default_options()}};
  config.train.steps = 1;
  return config;
}

inline Config make_tiny_sequence_config() {
  Config config = make_tiny_image_config("copy");
  config.data.options.erase("downscale");
  config.data.options.set("max_length", 16);
  config.model.type = "sequence";
  config.model.options.erase("mixtures");
  return config;
}

// Writes a run directory with one checkpoint, which contains the initial weights of the model.
inline void write_run(const std::filesystem::path& run_dir, const Config& config, int64_t step = 1) {
  const auto model = make_model(config, get_dataset_info(config));
  const auto parameters = model->parameters();
  std::filesystem::create_directories(run_dir);
  CheckpointContents contents;
  contents.model_tensors = {parameters.begin(), parameters.end()};
  contents.state.step = step;
  contents.config_toml = to_toml(config);
  save_checkpoint(run_dir.string(), contents);
}

// Returns the contents of the newest checkpoint of the run.
inline CheckpointContents read_checkpoint_contents(const std::filesystem::path& run_dir) {
  const std::string folder = find_checkpoint(run_dir.string(), false);
  CheckpointContents contents;
  const SafetensorsFile model(folder + "/model.safetensors"), optimizer(folder + "/optimizer.safetensors");
  for (const auto& [key, entry] : model.entries()) contents.model_tensors[key] = model.read(key);
  for (const auto& [key, entry] : optimizer.entries()) contents.optimizer_tensors[key] = optimizer.read(key);
  contents.state = Checkpoint(folder).read_state();
  contents.config_toml = read_file(folder + "/config.toml");
  return contents;
}

// Sets all elements of the parameter `name` in the newest checkpoint to `value`.
inline void fill_parameter(const std::filesystem::path& run_dir, const std::string& name, double value) {
  CheckpointContents contents = read_checkpoint_contents(run_dir);
  contents.model_tensors.at(name).fill(value);
  save_checkpoint(run_dir.string(), contents);
}

}  // namespace tapeformer::test
