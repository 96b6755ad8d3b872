#include "train/pretrained/family_config.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "train/config/value.h"
#include "train/pretrained/families/field_checks.h"
#include "train/pretrained/families/find_family.h"
#include "train/pretrained/families/rotary_fields.h"

namespace tapeformer {
namespace {

// Settings of a run with the model, for a training that starts from it.
const std::vector<std::string> kRunSettings = {
    "run.name=imported", "data.dataset=text",    "data.tokenizer=bpe",
    "data.batch_size=1", "model.type=sequence",  "model.dropout=0.0",
    "train.steps=1000",  "optimizer.kind=adamw", "optimizer.lr=2e-5"};

constexpr int64_t kMaxDefaultLength = 1024;  // tokens of a window, if the model has more positions

const std::vector<OptionSpec>& list_sequence_options() {
  return find_model_kind("sequence").options;
}

constexpr const char* kAttentionPrefix = "attention.";

// Returns the kind of attention and the name of an option "attention.KIND.NAME", or an empty kind and the
// name.
std::pair<std::string, std::string> split_option(const std::string& option) {
  const std::string prefix = kAttentionPrefix;
  if (!option.starts_with(prefix)) return {"", option};
  const size_t dot = option.find('.', prefix.size());
  return {option.substr(prefix.size(), dot - prefix.size()), option.substr(dot + 1)};
}

const OptionSpec& find_option(const std::string& option) {
  const auto [kind, name] = split_option(option);
  for (const OptionSpec& spec : kind.empty() ? list_sequence_options() : find_attention_kind(kind).options)
    if (spec.name == name) return spec;
  throw std::logic_error("no option " + option);
}

// Returns the value of an option of a family, or null if the attention of the model does not have its kind.
const OptionValue* find_value(const Config& config, const OptionValues& options, const std::string& option) {
  const auto [kind, name] = split_option(option);
  if (kind.empty()) return &options.values_by_name().at(name);
  const auto table = config.attention.find(kind);
  return table == config.attention.end() ? nullptr : &table->second.values_by_name().at(name);
}

// Returns the shortest list that repeats to the same kinds of `count` layers.
std::vector<std::string> shorten_pattern(const std::vector<std::string>& kinds, size_t count) {
  const auto repeats = [&](size_t period) {
    for (size_t i = 0; i < count; ++i)
      if (kinds[i % kinds.size()] != kinds[i % period]) return false;
    return true;
  };
  size_t period = 1;
  while (period < std::min(kinds.size(), count) && !repeats(period)) ++period;
  return {kinds.begin(), kinds.begin() + static_cast<std::ptrdiff_t>(period)};
}

// Returns the value of model.attention, and removes the field.
std::vector<std::string> read_layer_kinds(const ModelFamily& family, ConfigJson& config, int64_t layers,
                                          const std::string& source) {
  const std::string key = "layer_types";
  if (is_missing(config, key)) return {family.layer_kinds[0].second};
  const ConfigJson types = config.at(key);
  std::string expected = "a list of ";
  for (const auto& [name, kind] : family.layer_kinds)
    expected += (name == family.layer_kinds[0].first ? "\"" : " and \"") + name + "\"";
  if (!types.is_array()) refuse_field(source, key, expected, types);
  std::vector<std::string> kinds;
  for (const ConfigJson& type : types) {
    const auto found = std::find_if(family.layer_kinds.begin(), family.layer_kinds.end(),
                                    [&](const auto& known) { return type == known.first; });
    if (found == family.layer_kinds.end()) refuse_field(source, key, expected, types);
    kinds.push_back(found->second);
  }
  if (static_cast<int64_t>(kinds.size()) != layers)
    refuse_field(source, key, concat_text("a list of ", layers), types);
  config.erase(key);
  return shorten_pattern(kinds, kinds.size());
}

void rename_aliases(const ModelFamily& family, ConfigJson& config, const std::string& source) {
  check_rotary_names(family, config, source);
  for (const FamilyField& field : family.fields)
    for (const std::string& alias : field.aliases) {
      if (!is_missing(config, alias)) {
        if (is_missing(config, field.key)) config[field.key] = config.at(alias);
        if (config.at(field.key) != config.at(alias))
          refuse_field(source, alias, field.key + ", " + describe_json(config.at(field.key)),
                       config.at(alias));
      }
      config.erase(alias);
    }
}

void check_known_fields(const ModelFamily& family, const ConfigJson& config, const std::string& source) {
  for (const auto& item : config.items()) {
    const std::string& key = item.key();
    const bool is_known = item.value().is_null() || is_listed(list_ignored_fields(), key) ||
                          std::any_of(family.fields.begin(), family.fields.end(),
                                      [&](const FamilyField& field) { return field.key == key; });
    if (!is_known)
      throw CheckpointError(concat_text(source, ": ", escape_line(key.substr(0, 100)), ": the family ",
                                        family.name, " has no such field; its value is ",
                                        describe_json(item.value())));
  }
}

// Returns the value of a field as the value of its option.
OptionValue convert_to_option(const FamilyField& field, const ConfigJson& value, const std::string& source) {
  const OptionValue& fallback = find_option(field.option).default_value;
  if (std::holds_alternative<bool>(fallback)) {
    if (!value.is_boolean()) refuse_field(source, field.key, "true or false", value);
    return value.get<bool>();
  }
  if (std::holds_alternative<int64_t>(fallback)) {
    const bool is_fallback = field.fallback && value == *field.fallback;
    if (!is_integer(value) || (value.get<int64_t>() < 1 && !is_fallback))
      refuse_field(source, field.key, "an integer of at least 1", value);
    return value.get<int64_t>();
  }
  if (std::holds_alternative<double>(fallback)) {
    if (!value.is_number()) refuse_field(source, field.key, "a number", value);
    return value.get<double>();
  }
  std::string expected;
  for (const auto& [name, option] : field.names) {
    if (value == name) return option;
    expected += (expected.empty() ? "\"" : ", \"") + name + "\"";
  }
  refuse_field(source, field.key, expected, value);
}

// Returns the value of a field in the config of a family, with its fallback.
ConfigJson get_value(const FamilyField& field, const ConfigJson& config, const std::string& source) {
  if (!is_missing(config, field.key)) return config.at(field.key);
  if (field.derive) {
    const ConfigJson value = field.derive(config);
    if (!value.is_null()) return value;
    throw CheckpointError(concat_text(source, ": ", field.key,
                                      ": is missing, and the number of heads does not divide the width"));
  }
  if (!field.fallback) throw CheckpointError(concat_text(source, ": ", field.key, ": is missing"));
  return *field.fallback;
}

void check_accepted(const FamilyField& field, const ConfigJson& value, const std::string& source) {
  if (field.accepted.empty() ||
      std::find(field.accepted.begin(), field.accepted.end(), value) != field.accepted.end())
    return;
  std::string expected;
  for (const ConfigJson& accepted : field.accepted)
    expected += (expected.empty() ? "" : ", ") + describe_json(accepted);
  refuse_field(source, field.key, expected, value);
}

std::string make_setting(const std::string& option, const OptionValue& value) {
  return (option.starts_with(kAttentionPrefix) ? "" : "model.") + option + "=" + format_option_value(value);
}

Config load_settings(const std::vector<std::string>& settings, const std::string& source) try {
  return load_config("", settings,
                     {.unused_key_policy = UnusedKeyPolicy::ignore, .purpose = ConfigPurpose::generation});
} catch (const ConfigError& error) {
  std::string text = error.what();
  const std::string prefix = "--set ";
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
    text.erase(at, prefix.size());
  std::replace(text.begin(), text.end(), '\n', ';');
  throw CheckpointError(source + ": " + text);
}

// Returns the number in a field that sets the length of texts, or a default.
int64_t read_length(const ConfigJson& config, const std::string& key, const std::string& source) {
  if (is_missing(config, key)) return kMaxDefaultLength;
  const ConfigJson& value = config.at(key);
  if (!is_integer(value) || value.get<int64_t>() < 2)
    refuse_field(source, key, "an integer of at least 2", value);
  return std::min(value.get<int64_t>(), kMaxDefaultLength);
}

bool is_function_key(const std::string& key) {
  if (key.starts_with("attention.")) return true;
  if (!key.starts_with("model.")) return false;
  const std::string name = key.substr(6);
  if (name == "attention" || name == "type") return true;
  if (name == "feedforward_chunks" || name == "loss_chunks") return false;
  return has_option(list_sequence_options(), name) && find_option(name).use == OptionUse::model;
}

// Sets a field to the value of its option.
void write_field(const FamilyField& field, const OptionValue& value, ConfigJson& json) {
  std::visit(
      [&](const auto& x) {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::string>) {
          for (const auto& [name, option] : field.names)
            if (option == x) {
              json[field.key] = name;
              break;
            }
        } else {
          json[field.key] = x;
        }
      },
      value);
}

void write_layer_kinds(const ModelFamily& family, const Config& config, ConfigJson& json) {
  if (family.layer_kinds.size() < 2) return;
  const std::vector<std::string>& kinds = config.model.attention;
  for (int64_t layer = 0; layer < config.model.get<int64_t>("layers"); ++layer)
    for (const auto& [name, kind] : family.layer_kinds)
      if (kind == kinds[static_cast<size_t>(layer) % kinds.size()]) json["layer_types"].push_back(name);
}

}  // namespace

Config read_family_config(const ModelFamily& family, const ConfigJson& fields, const std::string& source) {
  ConfigJson config = fields;
  rename_aliases(family, config, source);
  if (family.read_fields) family.read_fields(config, source);
  read_rotary_fields(family, config, source);
  std::vector<std::string> settings = kRunSettings;
  for (const FamilyField& field : family.fields) {
    if (field.option != "layers") continue;
    const int64_t layers = get_integer_field(config, field.key, 1, source);
    settings.push_back("model.attention=" +
                       format_option_value(read_layer_kinds(family, config, layers, source)));
  }
  check_known_fields(family, config, source);
  for (const FamilyField& field : family.fields) {
    if (field.option.empty() && field.accepted.empty()) continue;
    const ConfigJson value = get_value(field, config, source);
    if (field.option.empty())
      check_accepted(field, value, source);
    else
      settings.push_back(make_setting(field.option, convert_to_option(field, value, source)));
    config[field.key] = value;
  }
  for (const auto& [option, value] : family.options.values_by_name())
    settings.push_back(make_setting(option, value));
  const char* const length_key = config.contains("n_positions") ? "n_positions" : "max_position_embeddings";
  settings.push_back(concat_text("data.sequence_length=", read_length(config, length_key, source)));
  return load_settings(settings, source);
}

ConfigJson write_family_config(const ModelFamily& family, const Config& original, int64_t vocabulary,
                               int64_t max_length) {
  const Config config = complete_model_sizes(original);
  const OptionValues options = config.model.all_options();
  ConfigJson json{{"architectures", {family.class_name}}, {"model_type", family.name}};
  for (const FamilyField& field : family.fields) {
    if (!field.accepted.empty()) json[field.key] = field.accepted[0];
    if (field.option.empty()) continue;
    if (const OptionValue* const value = find_value(config, options, field.option))
      write_field(field, *value, json);
  }
  write_layer_kinds(family, config, json);
  for (const FamilyField& field : family.fields)
    if (field.key == "max_position_embeddings") json[field.key] = max_length;
  write_rotary_aliases(family, json);
  write_rotary_fields(family, json);
  if (family.write_fields) family.write_fields(json);
  json["vocab_size"] = vocabulary;
  return json;
}

FamilyProblems find_family_problems(const ModelFamily& family, const Config& config) {
  const Config own = complete_model_sizes(config);
  FamilyProblems problems;
  const auto is_kind = [&](const std::string& name) {
    return std::any_of(family.layer_kinds.begin(), family.layer_kinds.end(),
                       [&](const auto& known) { return known.second == name; });
  };
  const std::string& own_kind = family.layer_kinds[0].second;
  const std::vector<std::string>& kinds = own.model.attention;
  if (!is_listed(kinds, own_kind) || !std::all_of(kinds.begin(), kinds.end(), is_kind))
    return {{"model.attention = " + format_config_value(own, "model.attention") + ", expected \"" + own_kind +
             "\""},
            false};
  const auto add = [&](const Config& described) {
    for (const std::string& key : find_differing_keys(own, described))
      if (is_function_key(key))
        problems.texts.push_back(key + " = " + format_config_value(own, key) + ", expected " +
                                 format_config_value(described, key));
  };
  try {
    add(complete_model_sizes(
        read_family_config(family, write_family_config(family, config, 1, 2), family.name)));
  } catch (const CheckpointError& error) {
    problems = {{std::string(error.what()).substr(family.name.size() + 2)}, false};  // without "NAME: "
  }
  return problems;
}

Config complete_model_sizes(Config config) {
  if (config.model.type != "sequence") return config;
  OptionValues& options = config.model.options;
  const auto get = [&](const char* option) { return config.model.get<int64_t>(option); };
  const auto set_if_zero = [&](const char* option, int64_t value) {
    if (get(option) == 0) options.set(option, value);
  };
  const int64_t heads = get("heads");
  set_if_zero("width", heads * get("head_dim"));
  set_if_zero("kv_heads", heads);
  set_if_zero("position_count", config.data.has("sequence_length")
                                    ? config.data.get<int64_t>("sequence_length")
                                    : kMaxDefaultLength);
  config.model.attention = shorten_pattern(config.model.attention, static_cast<size_t>(get("layers")));
  const HeadSizes sizes{heads, get("kv_heads"), get("kv_heads"), get("head_dim"), get("head_dim")};
  for (auto& [name, table] : config.attention) {
    const AttentionKind& kind = find_attention_kind(name);
    if (!kind.resolve_options) continue;
    const HeadSizes own = kind.get_sizes(table, sizes);
    table = kind.resolve_options(table, sizes);
    if (config.attention.size() > 1) continue;
    // No layer has the sizes of the model.
    options.set("heads", own.result_heads());
    options.set("kv_heads", own.result_heads());
    options.set("head_dim", own.dim);
  }
  return config;
}

}  // namespace tapeformer
