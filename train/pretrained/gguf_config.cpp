#include "train/pretrained/gguf_config.h"

#include <charconv>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "train/config/value.h"
#include "train/pretrained/families/rotary_fields.h"
#include "train/pretrained/gguf_rotary.h"

namespace tapeformer {
namespace {

// Keys after the architecture that read_gguf_config() checks, and keys that do not change a model.
const std::vector<std::string> kOtherKeys = {"attention.value_length", "attention.key_length",
                                             "attention.head_count_kv"};

// Returns the number with the fewest digits that is the same float32. Files have numbers in float32, and the
// config.json of the same model has decimal numbers.
double shorten_float32(double number) {
  const auto narrow = static_cast<float>(number);
  if (static_cast<double>(narrow) != number) return number;
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, narrow).ptr;
  double result = number;
  std::from_chars(text, end, result);
  return result;
}

ConfigJson get_json_value(const GgufFile& file, const std::string& key) {
  const GgufValue& value = file.metadata().at(key);
  if (const auto* const integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* const number = std::get_if<double>(&value)) return shorten_float32(*number);
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  throw CheckpointError(file.path() + ": " + key + ": expected a number or a text, got a list");
}

bool has_tensor(const GgufFile& file, const std::string& name) {
  return file.entries().contains(name);
}

}  // namespace

ConfigJson read_gguf_config(const ModelFamily& family, const GgufFile& file) {
  const std::string prefix = family.gguf + ".";
  ConfigJson config{{"model_type", family.name}};
  std::vector<std::string> known = kOtherKeys;
  for (const FamilyField& field : family.fields) {
    if (!field.gguf.empty()) known.push_back(field.gguf);
    if (!field.gguf.empty() && file.has(prefix + field.gguf))
      config[field.key] = get_json_value(file, prefix + field.gguf);
  }
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(prefix) && !is_listed(known, key.substr(prefix.size())) &&
        !is_gguf_rotary_key(key.substr(prefix.size())))
      throw CheckpointError(file.path() + ": " + escape_line(key.substr(0, 100)) + ": the architecture " +
                            family.gguf + " has no such key");
  const std::string value_length = prefix + "attention.value_length";
  if (file.has(value_length) && config.contains("head_dim") &&
      config["head_dim"] != file.get<int64_t>(value_length))
    throw CheckpointError(file.path() + ": " + value_length + ": differs from the length of keys");
  read_gguf_rotary(family, file, config);
  for (const auto& [key, name] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                  std::pair("pad_token_id", "tokenizer.ggml.padding_token_id")})
    if (file.has(name)) config[key] = file.get<int64_t>(name);
  write_rotary_aliases(family, config);
  for (const FamilyField& field : family.fields) {
    if (field.option == "tied_embeddings") config[field.key] = !has_tensor(file, "output.weight");
    if (field.option == "projection_biases")
      config[field.key] = has_tensor(file, "blk.0.attn_q.bias") || has_tensor(file, "blk.0.attn_qkv.bias");
    if (field.option == "feedforward_biases") config[field.key] = has_tensor(file, "blk.0.ffn_up.bias");
  }
  return config;
}

std::vector<std::pair<std::string, GgufValue>> write_gguf_config(const ModelFamily& family,
                                                                 const ConfigJson& config) {
  const std::string prefix = family.gguf + ".";
  std::vector<std::pair<std::string, GgufValue>> metadata;
  const auto add = [&](const std::string& key, GgufValue value) {
    metadata.emplace_back(prefix + key, std::move(value));
  };
  for (const FamilyField& field : family.fields) {
    if (field.gguf.empty() || !config.contains(field.key)) continue;
    const ConfigJson& value = config.at(field.key);
    if (value.is_boolean())
      add(field.gguf, value.get<bool>());
    else if (value.is_number_integer())
      add(field.gguf, value.get<int64_t>());
    else
      add(field.gguf, value.get<double>());
  }
  if (!config.contains("head_dim")) return metadata;
  const auto dim = config.at("head_dim").get<int64_t>();
  if (family.gguf != "gpt2" && family.gguf != "gptneox") add("attention.value_length", dim);
  for (auto& entry : write_gguf_rotary(family, config)) metadata.push_back(std::move(entry));
  return metadata;
}

}  // namespace tapeformer
