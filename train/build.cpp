#include "train/build.h"

#include <algorithm>
#include <atomic>

#include "core/device_control.h"
#include "core/options/name_patterns.h"
#include "core/system/log.h"
#include "core/system/machine.h"
#include "core/threads/threads.h"
#include "data/images/image_folder.h"
#include "models/layers/adapted_layers.h"
#include "ops/linear.h"

namespace tapeformer {
namespace {

DatasetRequest make_request(const Config& config, const std::string& split, const SplitOptions& use) {
  return {.split = split,
          .data_dir = use.data_dir,
          .limit = split == "train" ? config.data.limit : config.data.eval_limit,
          .seed = static_cast<uint64_t>(config.run.seed),
          .tokenizer = use.tokenizer,
          .use_random_windows = use.use_random_windows};
}

// Returns the kind of the data set in the config. Throws ConfigError for data sets of speech.
const DatasetKind& find_made_dataset(const Config& config) {
  const DatasetKind& kind = find_dataset_kind(config.data.dataset);
  if (!kind.make) throw ConfigError("data set " + kind.name + " needs a speech model");
  return kind;
}

bool has_validation_split(const Config& config) {
  const DatasetKind& kind = find_dataset_kind(config.data.dataset);
  return kind.has_validation_split && kind.has_validation_split(config.data.all_options());
}

// The path of the files of a split, and the config key that sets this path.
struct SplitPath {
  std::string key, path;
};

SplitPath find_split_path(const DataConfig& data, const std::string& split) {
  const std::string own = split + "_path";
  if (data.has(own) && !data.get<std::string>(own).empty())
    return {"data." + own, data.get<std::string>(own)};
  return {"data.path", data.has("path") ? data.get<std::string>("path") : ""};
}

// Returns f(). If f() throws a DataError whose message begins with the path of the split, throws a DataError
// whose message begins with the config key.
template <class F>
auto call_with_path_key(const DataConfig& data, const std::string& split, F&& f) {
  const SplitPath files = find_split_path(data, split);
  try {
    return std::forward<F>(f)();
  } catch (const DataError& error) {
    if (files.path.empty() || !std::string_view(error.what()).starts_with(files.path)) throw;
    throw DataError(files.key + ": " + error.what());
  }
}

}  // namespace

bool has_adapters(const Config& config) {
  const ModelConfig& model = config.model;
  const bool is_lstm = model.has("encoder") && model.get<std::string>("encoder") == "lstm";
  return config.lora.rank > 0 && model.has("heads") && !is_lstm;
}

void add_adapters(const Config& config, Module& model) {
  if (!has_adapters(config)) return;
  const NamePatterns targets("lora.targets", config.lora.targets);
  const std::vector<std::string> all = list_adaptable_layers(model);
  targets.require_matches(all, "linear layer of an encoder");
  std::vector<std::string> layers;
  for (const std::string& name : all)
    if (targets.matches(name)) layers.push_back(name);
  if (layers.empty()) throw ConfigError("lora.targets: expected at least one pattern");
  for (const auto& [name, tensor] : model.saved_tensors())
    for (const std::string& layer : layers)
      if (name == layer + ".weight" && config.lora.rank > std::min(tensor.size(0), tensor.size(1)))
        throw ConfigError(concat_text("lora.rank: expected at most ",
                                      std::min(tensor.size(0), tensor.size(1)), ", the smaller side of ",
                                      name, " ", tensor.shape(), ", got ", config.lora.rank));
  add_low_rank_adapters(
      model, layers, {.rank = config.lora.rank, .alpha = config.lora.alpha, .dropout = config.lora.dropout});
}

bool is_text_dataset(const Config& config) {
  return find_dataset_kind(config.data.dataset).type == DatasetType::text;
}

DatasetInfo get_dataset_info(const Config& config, std::shared_ptr<const Tokenizer> tokenizer,
                             const std::string& data_dir) {
  return find_made_dataset(config).get_info(config.data.all_options(),
                                            make_request(config, "train", {data_dir, std::move(tokenizer)}));
}

UnknownCharacters parse_unknown_characters(const std::string& name) {
  return name == "token" ? UnknownCharacters::token : UnknownCharacters::refuse;
}

std::string describe_encoding_error(const EncodingError& error) {
  const bool is_unknown = error.problem == EncodingProblem::unknown_character;
  return error.what() + std::string(is_unknown ? ", or set data.unknown_characters = \"token\"" : "");
}

std::shared_ptr<const Tokenizer> make_tokenizer(const Config& config, const std::string& data_dir) {
  return call_with_path_key(config.data, "train", [&] {
    return find_dataset_kind(config.data.dataset)
        .make_tokenizer(config.data.all_options(), make_request(config, "train", {data_dir}));
  });
}

void check_evaluation_files(const Config& config) {
  const DatasetKind& set = find_dataset_kind(config.data.dataset);
  for (const std::string name : {"valid_source", "valid_target", "test_source", "test_target"})
    if (config.data.has(name) && !config.data.get<std::string>(name).empty())
      require_text_files(config.data.get<std::string>(name));
  if (!has_option(set.options, "valid_path")) return;
  for (const std::string split : {"valid", "test"}) {
    const auto [key, path] = find_split_path(config.data, split);
    if (key == "data.path") continue;
    call_with_path_key(config.data, split, [&, &files = path] {
      if (set.type == DatasetType::text)
        require_text_files(files);
      else if (list_picture_paths(files).paths.empty())
        throw DataError(files + ": no PNG or JPEG files");
    });
  }
}

std::shared_ptr<const Dataset> make_split(const Config& config, const std::string& split,
                                          const SplitOptions& use) {
  const DatasetKind& kind = find_made_dataset(config);
  if (split == "valid" && kind.type == DatasetType::images && !has_validation_split(config))
    throw ConfigError(kind.name + ": no validation split; hold out training examples with " +
                      (has_option(kind.options, "valid_share") ? "data.valid_share" : "data.validation"));
  const OptionValues options = config.data.all_options();
  const DatasetRequest request = make_request(config, split, use);
  auto dataset = call_with_path_key(config.data, split, [&] {
    try {
      return kind.make(options, request);
    } catch (const EncodingError& error) {
      const bool lacks_character = error.problem != EncodingProblem::not_encodable;
      throw DataError(describe_encoding_error(error) + (lacks_character ? use.token_advice : ""));
    }
  });
  if (kind.make_tokenizer) return dataset;  // its information depends on the options only
  const DatasetInfo expected = kind.get_info(options, request), &found = dataset->info();
  if (!(found == expected))
    throw DataError(concat_text(kind.name, " ", split, ": expected images of ", expected.height, " x ",
                                expected.width, " x ", expected.channels, ", the files hold ", found.height,
                                " x ", found.width, " x ", found.channels));
  return dataset;
}

std::string choose_evaluation_split(const Config& config) {
  return has_validation_split(config) ? "valid" : "test";
}

AutoregressiveModelOptions make_model_options(const Config& config, const DatasetInfo& data) {
  auto options = read_options<AutoregressiveModelOptions>(config);
  options.head = config.model.type == "image" ? OutputHead::logistic_mixture : OutputHead::categorical;
  options.vocabulary_size = data.vocabulary;
  options.max_length = data.model_length();
  options.layout = {data.height, data.width, data.channels};
  return options;
}

std::unique_ptr<AutoregressiveModel> make_model(const Config& config, const DatasetInfo& data,
                                                Device device) {
  return build_model<AutoregressiveModel>(config, device, make_model_options(config, data));
}

std::unique_ptr<ExampleModel> make_example_model(const Config& config, const DatasetInfo& data,
                                                 Device device) {
  const DatasetKind& set = find_dataset_kind(config.data.dataset);
  if (config.model.type == "set") {
    auto options = read_options<SetTransformerOptions>(config);
    options.features = data.feature_count;
    options.components = config.data.has("components") ? config.data.get<int64_t>("components") : 0;
    options.max_length = data.length + 1;
    return build_model<SetTransformer>(config, device, options);
  }
  auto options = read_options<ClassifierOptions>(config);
  options.vocabulary_size = data.vocabulary;
  options.classes = set.classes;
  options.max_length = data.length + 1;
  options.has_variable_lengths = set.type == DatasetType::expressions;
  return build_model<Classifier>(config, device, options);
}

Device select_and_log_device(const std::string& name) {
  const DeviceChoice choice = choose_device(name);
  static std::atomic<bool> announced = false;
  if (!choice.reason.empty() && !announced.exchange(true))
    log_info("device ", choice.device.to_string(), ": ", choice.reason);
  return choice.device;
}

Device prepare_device(const RunConfig& run) {
  set_thread_count(static_cast<int>(run.threads));
  const Device device = select_and_log_device(run.device);
  if (device.is_cpu() && run.tf32) log_warning("run.tf32 = true has no effect: the device is the CPU");
  if (run.precision == "bfloat16" && !uses_bfloat16_instructions(device))
    log_warning(
        "run.precision = \"bfloat16\" saves memory but no time: this processor or build multiplies in "
        "float32");
  static std::atomic<bool> advised = false;
  if (const std::string advice = make_blas_hint();
      device.is_cpu() && !advice.empty() && !advised.exchange(true))
    log_info(advice);
  set_precision(run, device);
  return device;
}

void set_precision(const RunConfig& run, Device device) {
  if (run.precision == "bfloat16")
    set_precision(device, Precision::bfloat16);
  else
    set_precision(device, run.tf32 && !device.is_cpu() ? Precision::tf32 : Precision::float32);
}

}  // namespace tapeformer
