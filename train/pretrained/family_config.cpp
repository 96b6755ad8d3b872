#include "train/pretrained/family_config.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "train/config/value.h"
#include "train/pretrained/families/find_family.h"

namespace tapeformer {
namespace {

// Settings of a run with the model, for a training that starts from it.
const std::vector<std::string> kRunSettings = {
    "run.name=imported",   "data.dataset=text",      "data.tokenizer=bpe", "data.batch_size=1",
    "model.type=sequence", "model.dropout=0.0",      "train.steps=1000",   "optimizer.kind=adamw",
    "optimizer.lr=2e-5",   "model.attention=softmax"};

constexpr int64_t kMaxDefaultLength = 1024;  // tokens of a window, if the model has more positions

std::string describe_json(const ConfigJson& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 4) return concat_text("a list of ", value.size());
  std::string text = value.dump(-1, ' ', true, ConfigJson::error_handler_t::replace);
  constexpr size_t kMaxShown = 60;
  return text.size() > kMaxShown ? text.substr(0, kMaxShown) + "..." : text;
}

[[noreturn]] void refuse(const std::string& source, const std::string& key, const std::string& expected,
                         const ConfigJson& value) {
  throw CheckpointError(concat_text(source, ": ", escape_line(key.substr(0, 100)), ": expected ", expected,
                                    ", got ", describe_json(value)));
}

bool is_missing(const ConfigJson& config, const std::string& key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null();
}

bool is_integer(const ConfigJson& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
}

const std::vector<OptionSpec>& list_sequence_options() {
  return find_model_kind("sequence").options;
}

const OptionSpec& find_sequence_option(const std::string& name) {
  for (const OptionSpec& spec : list_sequence_options())
    if (spec.name == name) return spec;
  throw std::logic_error("no option " + name);
}

// Moves the entries of "rope_parameters", and of "rope_scaling" of earlier versions, to the fields.
void flatten_rotary_fields(ConfigJson& config, const std::string& source) {
  for (const std::string group : {"rope_parameters", "rope_scaling"}) {
    if (is_missing(config, group)) {
      config.erase(group);
      continue;
    }
    const ConfigJson entries = config.at(group);
    if (!entries.is_object()) refuse(source, group, "an object", entries);
    for (const auto& [key, value] : entries.items()) {
      const bool is_type = key == "rope_type" || key == "type";
      if (is_type && value != "default") refuse(source, group + "." + key, "\"default\"", value);
      if (!is_type && key != "rope_theta" && key != "partial_rotary_factor")
        refuse(source, group + "." + key, "rope_type, rope_theta and partial_rotary_factor only", value);
      if (!is_type) config[key] = value;
    }
    config.erase(group);
  }
}

// Layers of Qwen can see only a part of the text.
void check_layer_types(ConfigJson& config, const std::string& source) {
  if (is_missing(config, "layer_types")) return;
  const ConfigJson& types = config.at("layer_types");
  const bool is_full =
      types.is_array() && std::all_of(types.begin(), types.end(),
                                      [](const ConfigJson& type) { return type == "full_attention"; });
  if (!is_full) refuse(source, "layer_types", "a list of \"full_attention\"", types);
  config.erase("layer_types");
}

void rename_aliases(const ModelFamily& family, ConfigJson& config) {
  for (const FamilyField& field : family.fields)
    for (const std::string& alias : field.aliases) {
      if (!is_missing(config, alias) && is_missing(config, field.key)) config[field.key] = config.at(alias);
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
  const OptionValue& fallback = find_sequence_option(field.option).default_value;
  if (std::holds_alternative<bool>(fallback)) {
    if (!value.is_boolean()) refuse(source, field.key, "true or false", value);
    return value.get<bool>();
  }
  if (std::holds_alternative<int64_t>(fallback)) {
    if (!is_integer(value) || value.get<int64_t>() < 1)
      refuse(source, field.key, "an integer of at least 1", value);
    return value.get<int64_t>();
  }
  if (std::holds_alternative<double>(fallback)) {
    if (!value.is_number()) refuse(source, field.key, "a number", value);
    return value.get<double>();
  }
  std::string expected;
  for (const auto& [name, option] : field.names) {
    if (value == name) return option;
    expected += (expected.empty() ? "\"" : ", \"") + name + "\"";
  }
  refuse(source, field.key, expected, value);
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
  refuse(source, field.key, expected, value);
}

std::string make_setting(const std::string& option, const OptionValue& value) {
  return "model." + option + "=" + format_option_value(value);
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
  if (!is_integer(value) || value.get<int64_t>() < 2) refuse(source, key, "an integer of at least 2", value);
  return std::min(value.get<int64_t>(), kMaxDefaultLength);
}

bool is_function_key(const std::string& key) {
  if (key.starts_with("attention.")) return true;
  if (!key.starts_with("model.")) return false;
  const std::string name = key.substr(6);
  if (name == "attention" || name == "type") return true;
  if (name == "feedforward_chunks" || name == "loss_chunks") return false;
  return has_option(list_sequence_options(), name) && find_sequence_option(name).use == OptionUse::model;
}

}  // namespace

std::string get_text_field(const ConfigJson& config, const std::string& key, const std::string& source) {
  const auto found = config.find(key);
  if (found == config.end()) throw CheckpointError(concat_text(source, ": ", key, ": is missing"));
  if (!found->is_string()) refuse(source, key, "a text", *found);
  return found->get<std::string>();
}

Config read_family_config(const ModelFamily& family, const ConfigJson& fields, const std::string& source) {
  ConfigJson config = fields;
  flatten_rotary_fields(config, source);
  check_layer_types(config, source);
  rename_aliases(family, config);
  check_known_fields(family, config, source);
  std::vector<std::string> settings = kRunSettings;
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
    const OptionValue& value = options.values_by_name().at(field.option);
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
  for (const FamilyField& field : family.fields) {
    if (field.key == "max_position_embeddings") json[field.key] = max_length;
    // Earlier versions of transformers know only the other names of rotary positions.
    if (field.key != "rope_theta" && field.key != "partial_rotary_factor") continue;
    json["rope_parameters"]["rope_type"] = "default";
    json["rope_parameters"][field.key] = json[field.key];
    for (const std::string& alias : field.aliases) json[alias] = json[field.key];
  }
  json["vocab_size"] = vocabulary;
  return json;
}

std::vector<std::string> find_family_problems(const ModelFamily& family, const Config& config) {
  const Config own = complete_model_sizes(config);
  std::vector<std::string> problems;
  const auto add = [&](const Config& described) {
    for (const std::string& key : find_differing_keys(own, described))
      if (is_function_key(key))
        problems.push_back(key + " = " + format_config_value(own, key) + ", expected " +
                           format_config_value(described, key));
  };
  try {
    add(complete_model_sizes(
        read_family_config(family, write_family_config(family, config, 1, 2), family.name)));
  } catch (const CheckpointError& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

Config complete_model_sizes(Config config) {
  const auto set_if_zero = [&](const char* option, int64_t value) {
    if (config.model.has(option) && config.model.get<int64_t>(option) == 0)
      config.model.options.set(option, value);
  };
  if (config.model.type != "sequence") return config;
  const auto heads = config.model.get<int64_t>("heads");
  set_if_zero("width", heads * config.model.get<int64_t>("head_dim"));
  set_if_zero("kv_heads", heads);
  set_if_zero("position_count", config.data.has("sequence_length")
                                    ? config.data.get<int64_t>("sequence_length")
                                    : kMaxDefaultLength);
  return config;
}

}  // namespace tapeformer
