// Construction of the parts of a run from a Config: data set splits, the model and the device.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "data/dataset_kind.h"
#include "data/text/text_dataset.h"
#include "models/autoregressive_model.h"
#include "models/classifier.h"
#include "models/layers/option_error.h"
#include "models/set_transformer.h"
#include "train/config/config.h"
#include "train/config/option_names.h"

namespace tapeformer {

// Calls f() and returns its result. Converts an OptionError into a ConfigError that names the config key.
template <class F>
auto translate_option_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const OptionError& error) {
    const KeyProblem problem = make_key_problem(error.problem());
    throw ConfigError(problem.key + ": " + problem.message);
  }
}

// Returns the options of a model in the config, without those that depend on the data; see
// models/model_kind.h.
template <class Options>
Options read_options(const Config& config) {
  return read_model_options<Options>(config.model.all_options(), make_attention_pattern(config));
}

// Returns whether the config is that of a run with adapters. Models without attention have none.
bool has_adapters(const Config& config);

// Adds adapters to the layers that lora.targets matches. Does nothing in a run without adapters. Throws
// ConfigError if a pattern matches no layer that can have an adapter.
void add_adapters(const Config& config, Module& model);

// Returns a model with the adapters of the config, and weights initialized from run.seed. Throws ConfigError
// if an option is invalid.
template <class Model, class... Arguments>
std::unique_ptr<Model> build_model(const Config& config, Device device, const Arguments&... arguments) {
  auto model = translate_option_errors([&] { return std::make_unique<Model>(arguments...); });
  add_adapters(config, *model);
  model->initialize(static_cast<uint64_t>(config.run.seed));
  model->move(device);
  return model;
}

// Returns whether data.dataset names a data set of type DatasetType::text.
bool is_text_dataset(const Config& config);

// Returns the vocabulary size and the sizes of the examples of the data set in the config. Reads files only
// if the data set is a text, data.tokenizer is not "bytes", and `tokenizer` is null.
DatasetInfo get_dataset_info(const Config& config, std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                             const std::string& data_dir = "");

// Returns the value of data.unknown_characters.
UnknownCharacters parse_unknown_characters(const std::string& name);

// Returns the message of the error. If a character is unknown, adds the remedies.
std::string describe_encoding_error(const EncodingError& error);

// Returns a new tokenizer for the text data set in the config. Unless data.tokenizer is "bytes", reads the
// training text or the file in data.sentencepiece_model.
std::shared_ptr<const Tokenizer> make_tokenizer(const Config& config, const std::string& data_dir = "");

struct SplitOptions {
  std::string data_dir = {};
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // for texts; if null, a new tokenizer is made
  bool use_random_windows = false;                       // texts only; see TextOptions::use_random_windows
  std::string token_advice = {};  // added to errors of characters that the tokenizer lacks
};

// Returns the split "train", "valid" or "test" of the data set in the config. A training split has at most
// data.limit examples, and every other split has at most data.eval_limit examples. A limit of 0 selects all
// examples. Throws DataError if the size of the images in the files differs from the size that
// get_dataset_info() returns. Throws ConfigError if `split` is "valid" and the data set is an image data set
// without a validation split.
std::shared_ptr<const Dataset> make_split(const Config& config, const std::string& split,
                                          const SplitOptions& options = {});

// Checks the paths data.valid_path and data.test_path if they are set. Throws DataError if the path for a
// text data set contains no text, or if the path for an image folder contains no pictures. Training calls
// check_evaluation_files() before the first step, so that a wrong path is reported early.
void check_evaluation_files(const Config& config);

// Returns the split that training evaluates on. Returns "valid" for expressions, for sets of vectors, and for
// images and texts that have a validation split. Returns "test" for all other data sets.
std::string choose_evaluation_split(const Config& config);

// Returns the options of an autoregressive model of the data.
AutoregressiveModelOptions make_model_options(const Config& config, const DatasetInfo& data);

// Returns an autoregressive model; see build_model().
std::unique_ptr<AutoregressiveModel> make_model(const Config& config, const DatasetInfo& data,
                                                Device device = kCpu);

// Returns a classifier or a Set Transformer; see build_model().
std::unique_ptr<ExampleModel> make_example_model(const Config& config, const DatasetInfo& data,
                                                 Device device = kCpu);

// Returns the device with this name. For "auto", logs the chosen device and the reason, once per process.
// Throws DeviceError if the device is unavailable, and ConfigError for invalid names.
Device select_and_log_device(const std::string& name);

// Sets the number of CPU threads to run.threads and the precision of the device run.device, and returns the
// device. Throws DeviceError if the device is unavailable, and ConfigError if its name is invalid.
Device prepare_device(const RunConfig& run);

// Sets the precision of matrix products on `device` as run.precision and run.tf32 specify. The CPU ignores
// run.tf32.
void set_precision(const RunConfig& run, Device device);

}  // namespace tapeformer
