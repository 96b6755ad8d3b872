#include "train/pretrained/gguf_config.h"

#include <charconv>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

// Keys after the architecture that read_gguf_config() checks, and keys that do not change a model.
const std::vector<std::string> kOtherKeys = {"rope.dimension_count", "attention.value_length",
                                             "attention.key_length", "attention.head_count_kv"};

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

// Returns the number of rotated dimensions of a head.
void read_rotary_share(const GgufFile& file, const std::string& prefix, ConfigJson& config) {
  const std::string key = prefix + "rope.dimension_count";
  if (!file.has(key)) return;
  const auto rotated = file.get<int64_t>(key);
  const auto heads = file.get<int64_t>(prefix + "attention.head_count"),
             width = file.get<int64_t>(prefix + "embedding_length");
  const std::string dim_key = prefix + "attention.key_length";
  const int64_t dim = file.has(dim_key) ? file.get<int64_t>(dim_key) : heads > 0 ? width / heads : 0;
  if (rotated < 1 || rotated > dim)
    throw CheckpointError(
        concat_text(file.path(), ": ", key, ": is ", rotated, ", and heads have ", dim, " dimensions"));
  config["partial_rotary_factor"] = static_cast<double>(rotated) / static_cast<double>(dim);
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
    if (key.starts_with(prefix) && !is_listed(known, key.substr(prefix.size())))
      throw CheckpointError(file.path() + ": " + escape_line(key.substr(0, 100)) + ": the architecture " +
                            family.gguf + " has no such key");
  const std::string value_length = prefix + "attention.value_length";
  if (file.has(value_length) && config.contains("head_dim") &&
      config["head_dim"] != file.get<int64_t>(value_length))
    throw CheckpointError(file.path() + ": " + value_length + ": differs from the length of keys");
  read_rotary_share(file, prefix, config);
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
  if (config.contains("rope_theta")) {
    const double share = config.value("partial_rotary_factor", 1.0);
    add("rope.dimension_count", static_cast<int64_t>(share * static_cast<double>(dim)));
  }
  return metadata;
}

}  // namespace tapeformer
