#include "train/pretrained/pretrained_model.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "train/build.h"
#include "train/finite.h"
#include "train/pretrained/families/field_checks.h"
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
  const std::string name = format == PretrainedFormat::gguf ? rule->gguf : rule->huggingface;
  const std::optional<std::string> found = find_source_name(family, format, source, name);
  if (!found) throw CheckpointError(source.path() + ": has no tensor \"" + name + "\"");
  return source.entries().at(*found).shape[0];
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
  load_family_weights(family, format, get_family_sizes(model->options().encoder), source,
                      model->saved_tensors());
  if (const auto problem = find_non_finite(model->saved_tensors()))
    throw CheckpointError(source.path() + ": " + *problem);
  return model;
}

// Returns a token in a field, or -1 if the field names none.
int64_t read_token(const ConfigJson& fields, const char* key, int64_t vocabulary) {
  const ConfigJson value = get_optional_field(fields, key, -1);
  return is_integer(value) && value >= 0 && value < vocabulary ? value.get<int64_t>() : -1;
}

SourceFacts read_facts(const ConfigJson& fields, int64_t vocabulary) {
  SourceFacts facts{.start_token = read_token(fields, "bos_token_id", vocabulary),
                    .padding_token = read_token(fields, "pad_token_id", vocabulary)};
  for (const char* key : {"n_positions", "max_position_embeddings"})
    if (const ConfigJson length = get_optional_field(fields, key, 0); is_integer(length) && length > 0)
      facts.context_length = std::min<int64_t>(length.get<int64_t>(), INT32_MAX);
  return facts;
}

// Returns a tokenizer with as many tokens as the embedding has rows.
using TokenizerReader = std::function<std::shared_ptr<const Tokenizer>(int64_t rows)>;

std::shared_ptr<const Tokenizer> fit_tokenizer(BpeModel model, int64_t rows, const std::string& source) {
  fit_bpe_vocabulary(model, rows, source);
  return make_bpe_tokenizer(std::move(model), source);
}

PretrainedModel read_model(const ModelFamily& family, PretrainedFormat format, ConfigJson fields,
                           const WeightSource& source, const std::string& config_name,
                           const TokenizerReader& read_tokenizer) {
  // Files without a predictor have tied embeddings, unless the config says that a tensor is missing.
  const std::string predictor = find_predictor_name(family, format);
  for (const FamilyField& field : family.fields)
    if (field.option == "tied_embeddings" && is_missing(fields, field.key) &&
        !source.entries().contains(predictor))
      fields[field.key] = true;
  PretrainedModel result{.config = read_family_config(family, fields, config_name)};
  const int64_t vocabulary = find_vocabulary(family, format, source);
  check_vocabulary(fields, vocabulary, config_name);
  result.tokenizer = read_tokenizer(vocabulary);
  result.config.data.options.set("tokenizer", result.tokenizer->name());
  result.model = load_model(family, format, result.config, vocabulary, source);
  result.facts = read_facts(fields, vocabulary);
  return result;
}

// Returns the template of a folder, a file or an entry of tokenizer_config.json.
std::string read_chat_template(const HuggingFaceFolder& folder) {
  const std::string key = "chat_template", file = "chat_template.jinja", config = "tokenizer_config.json";
  if (folder.has_file(file)) try {
      std::string text = read_file(folder.file_path(file), kMaxTemplateBytes);
      if (find_invalid_utf8(text) != std::string::npos)
        throw CheckpointError(folder.file_path(file) + ": is not valid UTF-8");
      return text;
    } catch (const FileError& error) {
      throw CheckpointError(error.what());
    }
  if (!folder.has_file(config)) return "";
  const ConfigJson json = ConfigJson::parse(folder.read_json(config).to_json());
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns the config of the language model in a config of a larger model, such as one that reads pictures, or
// the config itself.
ConfigJson select_text_config(const ConfigJson& fields, const std::string& source) {
  const std::string key = "text_config", type = get_text_field(fields, "model_type", source),
                    tied = "tie_word_embeddings";
  for (const ModelFamily& family : list_model_families()) {
    if (family.outer_name != type || type.empty()) continue;
    if (is_missing(fields, key) || !fields.at(key).is_object())
      throw CheckpointError(source + ": " + key + ": expected an object");
    ConfigJson inner = fields.at(key);
    if (is_missing(inner, tied) && !is_missing(fields, tied)) inner[tied] = fields.at(tied);
    return inner;
  }
  return fields;
}

PretrainedModel read_gguf_file(const std::string& path) {
  const GgufFile file(path);
  const std::string key = "tokenizer.chat_template";
  const ModelFamily& family = find_gguf_family(file.get<std::string>("general.architecture"), path);
  PretrainedModel result = read_model(family, PretrainedFormat::gguf, read_gguf_config(family, file), file,
                                      path, [&, tokenizer = read_gguf_tokenizer(file)](int64_t rows) {
                                        return fit_tokenizer(tokenizer, rows, path);
                                      });
  if (file.has(key)) result.facts.chat_template = file.get<std::string>(key);
  return result;
}

PretrainedModel read_folder(const std::string& path) {
  const HuggingFaceFolder folder(path);
  const std::string name = folder.file_path("config.json");
  const ConfigJson fields = select_text_config(ConfigJson::parse(folder.read_json().to_json()), name);
  const ModelFamily& family = find_model_family(get_text_field(fields, "model_type", name), name);
  TokenizerReader read_tokenizer = [&](int64_t rows) { return read_piece_model(folder, rows); };
  if (!has_piece_model(folder))
    read_tokenizer = [&, tokenizer = read_huggingface_tokenizer(folder)](int64_t rows) {
      return fit_tokenizer(tokenizer, rows, path);
    };
  PretrainedModel result =
      read_model(family, PretrainedFormat::huggingface, fields, folder, name, read_tokenizer);
  result.facts.chat_template = read_chat_template(folder);
  return result;
}

}  // namespace

PretrainedModel read_pretrained_model(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    const bool is_hub_name = std::count(path.begin(), path.end(), '/') == 1 && path.front() != '.' &&
                             path.front() != '/' && path.back() != '/';
    throw CheckpointError(path + ": no such file or folder" +
                          (is_hub_name ? "; models of the Hugging Face hub are not downloaded: "
                                         "expected the folder of a downloaded model"
                                       : ""));
  }
  return std::filesystem::is_directory(path, ignored) ? read_folder(path) : read_gguf_file(path);
}

}  // namespace tapeformer
