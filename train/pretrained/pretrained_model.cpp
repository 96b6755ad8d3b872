#include "train/pretrained/pretrained_model.h"

#include <filesystem>

#include "core/base/errors.h"
#include "train/build.h"
#include "train/finite.h"
#include "train/pretrained/families/find_family.h"
#include "train/pretrained/family_config.h"
#include "train/pretrained/family_weights.h"
#include "train/pretrained/gguf_config.h"
#include "train/pretrained/pretrained_tokenizer.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

int64_t count_elements(const WeightSource& source) {
  int64_t elements = 0;
  for (const auto& [name, entry] : source.entries()) elements += entry.shape.numel();
  return elements;
}

// Returns the number of rows of the embedding.
int64_t find_vocabulary(const ModelFamily& family, PretrainedFormat format, const WeightSource& source) {
  const TensorRule* rule = nullptr;
  for (const TensorRule& candidate : family.tensors)
    if (candidate.parameters[0] == "value_embedding.weight") rule = &candidate;
  std::string name = format == PretrainedFormat::gguf ? rule->gguf : rule->huggingface;
  const bool has_prefix = format == PretrainedFormat::huggingface && name.starts_with(family.optional_prefix);
  if (has_prefix && !source.entries().contains(name)) name = name.substr(family.optional_prefix.size());
  const auto found = source.entries().find(name);
  if (found == source.entries().end())
    throw CheckpointError(source.path() + ": has no tensor \"" + name + "\"");
  return found->second.shape[0];
}

// Throws CheckpointError if the config has another number of tokens than the embedding.
void check_vocabulary(const ConfigJson& fields, int64_t rows, const std::string& source) {
  const auto found = fields.find("vocab_size");
  if (found == fields.end() || found->is_null() || *found == rows) return;
  throw CheckpointError(
      concat_text(source, ": vocab_size: is ", found->dump(), ", and the embedding has ", rows, " rows"));
}

// Returns the model with the config and the weights of a source. The weights bound the size of the model, so
// that a damaged config cannot exhaust the memory.
std::unique_ptr<AutoregressiveModel> load_model(const ModelFamily& family, PretrainedFormat format,
                                                const Config& config, int64_t vocabulary,
                                                const WeightSource& source) {
  constexpr int64_t kAllowedElements = int64_t{1} << 16;
  std::unique_ptr<AutoregressiveModel> model;
  try {
    const ParameterLimitScope limit(2 * count_elements(source) + kAllowedElements);
    DatasetInfo info;
    info.vocabulary = vocabulary;
    info.length = config.data.get<int64_t>("sequence_length");
    model = make_model(config, info);
  } catch (const ParameterLimitError& error) {
    throw CheckpointError(concat_text(source.path(), ": the config does not match the tensors: with ",
                                      error.what(), " the model has more parameters than the file"));
  } catch (const ConfigError& error) {
    throw CheckpointError(source.path() + ": " + error.what());
  }
  const EncoderOptions& encoder = model->options().encoder;
  load_family_weights(family, format,
                      {.layers = encoder.layers,
                       .heads = encoder.heads,
                       .head_dim = encoder.head_dim,
                       .width = encoder.width()},
                      source, model->saved_tensors());
  if (const auto problem = find_non_finite(model->saved_tensors()))
    throw CheckpointError(source.path() + ": " + *problem);
  return model;
}

PretrainedModel read_model(const ModelFamily& family, PretrainedFormat format, ConfigJson fields,
                           const WeightSource& source, const std::string& config_name, BpeModel tokenizer) {
  // Files without a predictor have tied embeddings, also if the config does not say so.
  const std::string predictor = find_predictor_name(family, format);
  for (const FamilyField& field : family.fields)
    if (field.option == "tied_embeddings" && !source.entries().contains(predictor)) fields[field.key] = true;
  PretrainedModel result{.config = read_family_config(family, fields, config_name)};
  const int64_t vocabulary = find_vocabulary(family, format, source);
  check_vocabulary(fields, vocabulary, config_name);
  fit_bpe_vocabulary(tokenizer, vocabulary, source.path());
  result.tokenizer = std::move(tokenizer);
  result.model = load_model(family, format, result.config, vocabulary, source);
  return result;
}

// Returns the template of a folder, a file or an entry of tokenizer_config.json.
std::string read_chat_template(const HuggingFaceFolder& folder) {
  const std::string key = "chat_template", file = "chat_template.jinja", config = "tokenizer_config.json";
  if (folder.has_file(file)) try {
      return read_file(folder.file_path(file), kMaxTemplateBytes);
    } catch (const FileError& error) {
      throw CheckpointError(error.what());
    }
  if (!folder.has_file(config)) return "";
  const ConfigJson json = ConfigJson::parse(folder.read_json(config).to_json());
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

PretrainedModel read_gguf_file(const std::string& path) {
  const GgufFile file(path);
  const std::string key = "tokenizer.chat_template";
  const ModelFamily& family = find_gguf_family(file.get<std::string>("general.architecture"), path);
  PretrainedModel result = read_model(family, PretrainedFormat::gguf, read_gguf_config(family, file), file,
                                      path, read_gguf_tokenizer(file));
  if (file.has(key)) result.chat_template = file.get<std::string>(key);
  return result;
}

PretrainedModel read_folder(const std::string& path) {
  const HuggingFaceFolder folder(path);
  const std::string name = folder.file_path("config.json");
  const ConfigJson fields = ConfigJson::parse(folder.read_json().to_json());
  const ModelFamily& family = find_model_family(get_text_field(fields, "model_type", name), name);
  PretrainedModel result = read_model(family, PretrainedFormat::huggingface, fields, folder, name,
                                      read_huggingface_tokenizer(folder));
  result.chat_template = read_chat_template(folder);
  return result;
}

}  // namespace

PretrainedModel read_pretrained_model(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw CheckpointError(path + ": no such file or folder");
  return std::filesystem::is_directory(path, ignored) ? read_folder(path) : read_gguf_file(path);
}

}  // namespace tapeformer
