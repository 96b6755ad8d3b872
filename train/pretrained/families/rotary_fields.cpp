#include "train/pretrained/families/rotary_fields.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "train/config/value.h"
#include "train/pretrained/families/field_checks.h"

namespace tapeformer {
namespace {

constexpr const char *kParameters = "rope_parameters", *kScaling = "rope_scaling", *kType = "rope_type";
constexpr const char *kLength = "original_max_position_embeddings", *kLongest = "max_position_embeddings";

// An entry of the objects, and the field with its value.
struct RotaryEntry {
  const char *entry, *field;
};

struct RotaryType {
  const char* name;
  std::vector<RotaryEntry> required, optional;
};

const std::vector<RotaryType>& list_types() {
  static const auto* const list = new std::vector<RotaryType>{
      {"default", {}, {}},
      {"linear", {{"factor", "rope_factor"}}, {}},
      {"llama3",
       {{"factor", "rope_factor"},
        {"low_freq_factor", "rope_slow"},
        {"high_freq_factor", "rope_fast"},
        {kLength, "rope_length"}},
       {}},
      {"yarn",
       {{"factor", "rope_factor"}, {kLength, "rope_length"}},
       {{"beta_slow", "rope_slow"}, {"beta_fast", "rope_fast"}, {"attention_factor", "rope_amplitude"}}}};
  return *list;
}

const RotaryType* find_type(const ConfigJson& name) {
  for (const RotaryType& type : list_types())
    if (name == type.name) return &type;
  return nullptr;
}

bool has_entry(const std::vector<RotaryEntry>& entries, const std::string& key) {
  return std::any_of(entries.begin(), entries.end(), [&](const RotaryEntry& e) { return key == e.entry; });
}

// Entries that do not change what a model computes with these values.
bool is_without_effect(const ModelFamily& family, const std::string& key, const ConfigJson& value) {
  return value.is_null() || key == "rope_type" || key == "type" || key == "finetuned" ||
         (key == "truncate" && value == true) || is_listed(family.ignored_rotary_fields, key);
}

// Moves the entries of the object `group` to `config`.
void read_object(const ModelFamily& family, const ConfigJson& entries, ConfigJson& config,
                 const std::string& group, const std::string& source) {
  const std::string prefix = group + ".", type_key = is_missing(entries, kType) ? "type" : kType;
  const ConfigJson name = get_optional_field(entries, type_key, "default");
  const RotaryType* const type = find_type(name);
  if (!type) refuse_field(source, prefix + type_key, R"("default", "linear", "llama3" or "yarn")", name);
  for (const auto& [key, value] : entries.items()) {
    if (key == "rope_theta" || key == "partial_rotary_factor")
      config[key] = value;
    else if (!has_entry(type->required, key) && !has_entry(type->optional, key) &&
             !is_without_effect(family, key, value))
      throw CheckpointError(concat_text(source, ": ", prefix, escape_line(key.substr(0, 100)),
                                        ": the rotary positions \"", type->name,
                                        "\" have no such field; its value is ", describe_json(value)));
  }
  config[kType] = type->name;
  if (name == "yarn") config["rope_fast"] = 32;  // the default of the format
  const auto read = [&](const RotaryEntry& entry) {
    const bool is_length = std::string(entry.entry) == kLength;
    if (is_length)
      config[entry.field] = get_integer_field(entries, entry.entry, 1, source + ": " + group);
    else
      config[entry.field] = get_number_field(entries, entry.entry, source + ": " + group);
  };
  for (const RotaryEntry& entry : type->required) {
    const bool is_length = std::string(entry.entry) == kLength;
    if (is_length && is_missing(entries, kLength) && !is_missing(config, kLongest))
      config[entry.field] = get_integer_field(config, kLongest, 1, source);
    else
      read(entry);
  }
  for (const RotaryEntry& entry : type->optional) {
    if (is_missing(entries, entry.entry)) continue;
    read(entry);
    if (config[entry.field] <= 0)
      refuse_field(source, prefix + entry.entry, "a number above 0", entries.at(entry.entry));
  }
}

// Returns the object, or null if it is missing or empty.
const ConfigJson* find_object(const ConfigJson& config, const std::string& group, const std::string& source) {
  if (is_missing(config, group)) return nullptr;
  const ConfigJson& entries = config.at(group);
  if (!entries.is_object()) refuse_field(source, group, "an object", entries);
  return entries.empty() ? nullptr : &entries;
}

bool is_rotary_field(const FamilyField& field) {
  return field.key == "rope_theta" || field.key == "partial_rotary_factor";
}

bool has_field(const ModelFamily& family, const std::string& key) {
  return std::any_of(family.fields.begin(), family.fields.end(),
                     [&](const FamilyField& field) { return field.key == key; });
}

}  // namespace

std::vector<FamilyField> make_rotary_scaling_fields() {
  const auto number = [](const char* key, const char* option, ConfigJson fallback) {
    return FamilyField{.key = key, .option = option, .fallback = std::move(fallback)};
  };
  return {{.key = kType,
           .option = "rotary_scaling",
           .fallback = "default",
           .names = {{"default", "none"}, {"linear", "linear"}, {"llama3", "llama3"}, {"yarn", "yarn"}}},
          number("rope_factor", "rotary_factor", 1.0),
          number("rope_length", "rotary_length", 0),
          number("rope_slow", "rotary_slow", 1.0),
          number("rope_fast", "rotary_fast", 4.0),
          number("rope_amplitude", "rotary_amplitude", 0.0)};
}

void read_rotary_fields(const ModelFamily& family, ConfigJson& config, const std::string& source) {
  ConfigJson plain = config;
  plain.erase(kParameters);
  plain.erase(kScaling);
  std::vector<ConfigJson> results;
  for (const char* group : {kParameters, kScaling})
    if (const ConfigJson* const entries = find_object(config, group, source))
      read_object(family, *entries, results.emplace_back(plain), group, source);
  // transformers reads one of two objects, and programs differ in which one.
  if (results.size() == 2 && nlohmann::json(results[0]) != nlohmann::json(results[1]))
    throw CheckpointError(concat_text(source, ": ", kParameters, " and ", kScaling,
                                      " describe different rotary positions: remove one of them"));
  config = results.empty() ? plain : results[0];
}

void check_rotary_names(const ModelFamily& family, const ConfigJson& config, const std::string& source) {
  const auto is_hidden = [&](const std::string& key) {
    bool has_all = true, has_object = false;
    for (const char* group : {kParameters, kScaling})
      if (const ConfigJson* const entries = find_object(config, group, source)) {
        has_object = true;
        has_all &= !is_missing(*entries, key);
      }
    return has_object && has_all;
  };
  for (const FamilyField& field : family.fields) {
    if (!is_rotary_field(field) || field.aliases.empty() || is_missing(config, field.key)) continue;
    const bool has_alias = std::any_of(field.aliases.begin(), field.aliases.end(),
                                       [&](const std::string& alias) { return !is_missing(config, alias); });
    if (!has_alias && !is_hidden(field.key))
      throw CheckpointError(concat_text(source, ": ", field.key, ": the family ", family.name, " has ",
                                        field.aliases[0], " or ", kParameters, ".", field.key));
  }
}

void write_rotary_aliases(const ModelFamily& family, ConfigJson& config) {
  for (const FamilyField& field : family.fields)
    if (is_rotary_field(field) && config.contains(field.key))
      for (const std::string& alias : field.aliases) config[alias] = config[field.key];
}

void write_rotary_fields(const ModelFamily& family, ConfigJson& config) {
  if (!has_field(family, "rope_theta")) return;
  ConfigJson object{{kType, config.value(kType, "default")}};
  const RotaryType& type = *find_type(object.at(kType));
  for (const auto& list : {type.required, type.optional})
    for (const RotaryEntry& entry : list)
      if (config.at(entry.field) != 0) object[entry.entry] = config.at(entry.field);
  for (const FamilyField& field : make_rotary_scaling_fields()) config.erase(field.key);
  // Earlier versions of transformers read "rope_scaling" and the other fields beside it.
  if (type.name != std::string("default")) config[kScaling] = object;
  for (const char* key : {"rope_theta", "partial_rotary_factor"})
    if (config.contains(key)) object[key] = config.at(key);
  config[kParameters] = object;
}

}  // namespace tapeformer
