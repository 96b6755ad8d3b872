// From a Config to the objects of a run: data set splits and the model.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "models/autoregressive_model.h"
#include "models/option_error.h"
#include "train/config/config.h"

namespace tapeformer {

// Returns the registered attention kinds and the rules of models, for configs.
AttentionCatalogue attention_catalogue();

// Returns the contradictions between the options of the model that a config describes.
std::vector<KeyProblem> model_problems(const Config& config);

// Returns the text "key: problem" with the config key of the option; "option: problem" if there is no key.
std::string text_with_key(const OptionProblem& problem);

// Returns f(). Turns an OptionError of a model into a ConfigError that names the config key.
template <class F>
auto with_config_keys(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const OptionError& error) {
    throw ConfigError(text_with_key(error.problem()));
  }
}

// Sizes of the config's data, known without its files.
DatasetInfo describe_data(const Config& config);

// One split of the config's data set: "train" (limited by data.limit), or "valid" or "test" (by
// data.eval_limit). Throws DataError for files whose examples are not of the known size.
std::shared_ptr<const Dataset> make_split(const Config& config, const std::string& split,
                                          const std::string& data_dir);

// The split that training evaluates on: "valid" when examples are held out, else "test".
std::string evaluation_split(const Config& config);

// The layers of a Transformer.
EncoderOptions encoder_options(const Config& config);

// The sizes and kinds of the model. Throws ConfigError when config and data do not fit.
AutoregressiveOptions model_options(const Config& config, const DatasetInfo& data);

// A model for the data, with its weights set from run.seed. Throws ConfigError when config and data do not
// fit.
std::unique_ptr<AutoregressiveModel> make_model(const Config& config, const DatasetInfo& data,
                                                Device device = kCpu);

// Returns the device with this name. For "auto", logs the chosen device and the reason, once per process.
// Throws DeviceError if the device is unavailable, and ConfigError for invalid names.
Device announced_device(const std::string& name);

// Sets threads, checks the device and sets its precision. Throws DeviceError (device unavailable) and
// ConfigError.
Device prepare_machine(const RunConfig& run);

// Products on the device as run.precision and run.tf32 say. The CPU computes in float32 whatever they say, so
// that a model trained on a device can be used anywhere.
void set_precision(const RunConfig& run, Device device);

}  // namespace tapeformer
