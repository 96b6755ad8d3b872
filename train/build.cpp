#include "train/build.h"

#include <atomic>

#include "core/cuda/product_algorithms.h"
#include "core/device_control.h"
#include "core/system/log.h"
#include "core/system/machine.h"
#include "core/threads/threads.h"
#include "ops/linear.h"

namespace tapeformer {
namespace {

PositionKind parse_positions(const std::string& name) {
  if (name == "none" || name == "rotary") return PositionKind::none;
  if (name == "axial") return PositionKind::axial;
  return name == "grid" ? PositionKind::grid : PositionKind::sinusoidal;
}

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

struct OptionKey {
  const char *option, *key;
  // Text that is appended to error messages about the option, such as `: expected "pre"` for model.norm.
  const char* expected = "";
};
constexpr OptionKey kOptionKeys[] = {{"attention", "model.attention"},
                                     {"attention_dropout", "model.attention_dropout"},
                                     {"axial.dims", "model.axial_dims"},
                                     {"axial.shape", "model.axial_shape"},
                                     {"head_dim", "model.head_dim"},
                                     {"hidden", "model.hidden"},
                                     {"max_frames", "model.max_frames"},
                                     {"positions", "model.positions"},
                                     {"pre_norm", "model.norm", ": expected \"pre\""},
                                     {"recompute", "model.recompute"},
                                     {"reversible", "model.reversible"},
                                     {"subsampling", "model.subsampling"},
                                     {"tied_embeddings", "model.tied_embeddings"},
                                     {"value_embedding_dim", "model.value_dim"},
                                     {"window", "--window"}};

KeyProblem make_key_problem(const OptionProblem& problem) {
  const std::string attention = "attention_options.";
  if (problem.option.starts_with(attention))
    return {"attention." + problem.option.substr(attention.size()), problem.message};
  for (const OptionKey& known : kOptionKeys)
    if (problem.option == known.option) return {known.key, problem.message + known.expected};
  return {problem.option, problem.message};
}

// Returns the options of a Set Transformer. Options that depend on the sizes of the data keep their default
// values.
SetTransformerOptions set_options_without_data(const Config& config) {
  return {.encoder = make_encoder_options(config),
          .components = config.data.has("components") ? config.data.get<int64_t>("components") : 0,
          .decoder_layers = config.model.decoder_layers};
}

// Returns the options of an autoregressive model. Options that depend on the sizes of the data keep their
// default values.
AutoregressiveModelOptions make_options_without_data(const Config& config) {
  AutoregressiveModelOptions options;
  options.encoder = make_encoder_options(config);
  options.head = config.model.type == "image" ? OutputHead::logistic_mixture : OutputHead::categorical;
  options.mixtures = config.model.mixtures;
  options.value_embedding_dim = config.model.value_dim;
  options.position_kind = parse_positions(config.model.positions);
  options.axial_shape = {config.model.axial_shape, config.model.axial_dims};
  options.loss_chunks = config.model.loss_chunks;
  options.tied_embeddings = config.model.tied_embeddings;
  options.training_loss_options = {config.model.label_smoothing, config.model.z_loss};
  return options;
}

}  // namespace

std::vector<KeyProblem> find_model_problems(const Config& config) {
  std::vector<OptionProblem> found;
  const std::string& type = config.model.type;
  if (type == "image" || type == "sequence")
    found = find_option_problems(make_options_without_data(config));
  else if (type == "set")
    found = find_option_problems(set_options_without_data(config));
  else if (type == "classification" || config.model.encoder == "transformer")
    found = find_option_problems(make_encoder_options(config));
  std::vector<KeyProblem> problems;
  for (const OptionProblem& problem : found) problems.push_back(make_key_problem(problem));
  const AttentionPattern attention = make_encoder_options(config).attention;
  for (const AttentionLayerChoice& choice : attention) {
    const int64_t memory =
        find_attention_kind(choice.kind).get_segment_memory_size(choice.options).token_span();
    if (memory == 0 || (config.data.has("streams") && config.data.get<bool>("streams"))) continue;
    const std::string table = has_several_kinds(attention) ? "attention." + choice.kind : "attention";
    problems.push_back({table + ".memory",
                        concat_text("a memory of ", memory,
                                    " tokens needs the consecutive segments of a text, data.streams = true; "
                                    "expected 0 for other data")});
    break;
  }
  return problems;
}

std::string format_option_problem(const OptionProblem& problem) {
  const auto [key, text] = make_key_problem(problem);
  return key + ": " + text;
}

EncoderOptions make_encoder_options(const Config& config) {
  const ModelConfig& m = config.model;
  EncoderOptions options;
  options.layers = m.layers;
  options.heads = m.heads;
  options.head_dim = m.head_dim;
  options.feedforward = m.feedforward;
  options.attention.clear();
  for (const std::string& kind : m.attention) options.attention.push_back({kind, config.attention.at(kind)});
  options.rotary = m.positions == "rotary";
  options.dropout = m.dropout;
  const bool supports_weight_dropout = supports(options.attention, &AttentionCapabilities::weight_dropout);
  options.attention_dropout = supports_weight_dropout ? m.attention_dropout : 0;
  options.pre_norm = m.norm == "pre";
  options.activation = m.activation == "gelu" ? Activation::gelu : Activation::relu;
  options.recompute = m.recompute;
  options.reversible = m.reversible;
  options.feedforward_chunks = m.feedforward_chunks;
  return options;
}

AttentionCatalogue make_attention_catalogue() {
  AttentionCatalogue catalogue;
  for (const AttentionKind& kind : list_attention_kinds()) catalogue.kind_names.push_back(kind.name);
  catalogue.list_options = [](const std::string& name) { return find_attention_kind(name).options; };
  catalogue.explain_missing_dropout = [](const std::string& name) {
    return find_attention_kind(name).capabilities.weight_dropout.reason();
  };
  catalogue.find_model_problems = find_model_problems;
  return catalogue;
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
  const bool is_unknown = dynamic_cast<const UnknownCharacterError*>(&error) != nullptr;
  return error.what() + std::string(is_unknown
                                        ? "; train the model with the option byte_fallback of spm_train, "
                                          "or set data.unknown_characters = \"token\""
                                        : "");
}

std::shared_ptr<const Tokenizer> make_tokenizer(const Config& config, const std::string& data_dir) {
  return call_with_path_key(config.data, "train", [&] {
    return find_dataset_kind(config.data.dataset)
        .make_tokenizer(config.data.all_options(), make_request(config, "train", {data_dir}));
  });
}

void check_evaluation_files(const Config& config) {
  const DatasetKind& set = find_dataset_kind(config.data.dataset);
  if (!set.has_option("valid_path")) return;
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
                      (kind.has_option("valid_share") ? "data.valid_share" : "data.validation"));
  const OptionValues options = config.data.all_options();
  const DatasetRequest request = make_request(config, split, use);
  auto dataset = call_with_path_key(config.data, split, [&] {
    try {
      return kind.make(options, request);
    } catch (const UnknownCharacterError& error) {
      throw DataError(describe_encoding_error(error));
    }
  });
  if (kind.type == DatasetType::text) return dataset;
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
  const bool image = config.model.type == "image";
  if (image && data.channels == 0)
    throw ConfigError("model.type = \"image\" needs images, and data.dataset = \"" + config.data.dataset +
                      "\" has none; use model.type = \"sequence\"");
  AutoregressiveModelOptions options = make_options_without_data(config);
  options.vocabulary_size = data.vocabulary;
  options.max_length = data.length;
  options.layout = {data.height, data.width, data.channels};
  return options;
}

std::unique_ptr<AutoregressiveModel> make_model(const Config& config, const DatasetInfo& data,
                                                Device device) {
  auto model = translate_option_errors(
      [&] { return std::make_unique<AutoregressiveModel>(make_model_options(config, data)); });
  model->initialize(static_cast<uint64_t>(config.run.seed));
  model->move(device);
  return model;
}

ClassifierOptions make_classifier_options(const Config& config, const DatasetInfo& data) {
  const DatasetKind& set = find_dataset_kind(config.data.dataset);
  return {.encoder = make_encoder_options(config),
          .vocabulary_size = data.vocabulary,
          .classes = set.classes,
          .max_length = data.length + 1,
          .summary_tokens = config.model.summary_tokens,
          .has_variable_lengths = set.type == DatasetType::expressions};
}

SetTransformerOptions make_set_transformer_options(const Config& config, const DatasetInfo& data) {
  SetTransformerOptions options = set_options_without_data(config);
  options.features = data.feature_count;
  options.max_length = data.length + 1;
  return options;
}

std::unique_ptr<ExampleModel> make_example_model(const Config& config, const DatasetInfo& data,
                                                 Device device) {
  auto model = translate_option_errors([&]() -> std::unique_ptr<ExampleModel> {
    if (config.model.type == "set")
      return std::make_unique<SetTransformer>(make_set_transformer_options(config, data));
    return std::make_unique<Classifier>(make_classifier_options(config, data));
  });
  model->initialize(static_cast<uint64_t>(config.run.seed));
  model->move(device);
  return model;
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

std::shared_ptr<cuda::ProductTuningScope> start_product_tuning(const RunConfig& run, Device device,
                                                               const std::filesystem::path& folder,
                                                               const std::string& name, int64_t rank) {
  if constexpr (kHasCuda) {
    if (device.is_cpu() || !run.time_products) return nullptr;
    const std::string file = rank == 0 ? name : concat_text(name, "-", rank);
    std::error_code ignored;
    const bool exists = std::filesystem::is_directory(folder, ignored);
    return std::make_shared<cuda::ProductTuningScope>(device, exists ? (folder / file).string() : "");
  }
  return nullptr;
}

}  // namespace tapeformer
