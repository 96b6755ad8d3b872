#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "core/base/errors.h"
#include "train/config/config.h"
#include "train/config/schema.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr std::string_view kAttentionTable = "attention.";

bool has_several_kinds(const Config& config) {
  return config.attention.size() > 1;
}

// Returns the name of the key of an option of an attention kind that the config uses.
std::string name_attention_entry(const Config& config, const std::string& kind, const std::string& option) {
  return std::string(kAttentionTable) + (has_several_kinds(config) ? kind + "." : "") + option;
}

// Returns the option values of all attention kinds in the config. The keys of the map are the names of the
// config keys: "attention.OPTION", or "attention.KIND.OPTION" if there are several kinds.
std::map<std::string, OptionValue> list_attention_entries(const Config& config) {
  std::map<std::string, OptionValue> entries;
  if (!uses_attention(config)) return entries;
  for (const auto& [kind, options] : config.attention)
    for (const auto& [option, value] : options.values_by_name())
      entries[name_attention_entry(config, kind, option)] = value;
  return entries;
}

// Returns the [attention] tables as TOML text.
std::string format_attention_tables(const Config& config) {
  std::string text;
  for (const auto& [kind, options] : config.attention) {
    text += has_several_kinds(config) ? "\n[attention." + kind + "]\n" : "\n[attention]\n";
    for (const auto& [option, value] : options.values_by_name())
      text += option + " = " + format_option_value(value) + "\n";
  }
  return text;
}

// Returns the keys of a table that have an effect, as TOML text.
std::string format_table(const Config& config, const std::string& table,
                         const std::vector<SchemaKey>& schema) {
  std::string text;
  for (const auto& key : schema)
    if (key.table_name == table && !key.find_unmet_condition(config))
      text += key.spec.name + " = " + key.format(key.get(config)) + "\n";
  return text;
}

std::string format_help_line(const OptionSpec& spec, const KeyScope& scope) {
  std::string owners;
  for (const KeyCondition& condition : scope)
    owners += (owners.empty() ? "; for " : ", ") + condition.config_description;
  return "  " + spec.name + " = " + format_option_value(spec.default_value, spec.allow_scalar) + "\n      " +
         spec.help + " (" + describe_expected_value(spec) + owners + ")\n";
}

// Adds the keys of [attention] to the result of find_keys_fixed_by_training().
void add_attention_keys_fixed_by_training(const Config& trained, const Config& config, FixedKeys& keys) {
  const auto add = [&](const std::string& name, const std::string& value) {
    const bool is_known =
        std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return key.first == name; });
    if (!is_known) keys.emplace_back(name, value);
  };
  const AttentionPattern old_layers = make_attention_pattern(trained),
                         layers = make_attention_pattern(config);
  for (size_t layer = 0; layer < old_layers.size() * layers.size(); ++layer) {  // both lists repeat
    const auto& [old_kind, old_options] = old_layers[layer % old_layers.size()];
    const auto& [kind, options] = layers[layer % layers.size()];
    const AttentionKind& to = find_attention_kind(kind);
    const bool may_replace = find_attention_kind(old_kind).capabilities.approximates_softmax &&
                             to.capabilities.approximates_softmax;
    if (old_kind != kind && !may_replace) {
      add("model.attention", format_config_value(trained, "model.attention"));
      continue;
    }
    const auto &old_values = old_options.values_by_name(), &values = options.values_by_name();
    for (const OptionSpec& spec : to.options)
      if (const auto old = old_values.find(spec.name);
          spec.is_fixed_by_training && old != old_values.end() && old->second != values.at(spec.name))
        add(name_attention_entry(config, kind, spec.name), format_option_value(old->second));
  }
}

constexpr char kExtends[] = "extends";
constexpr char kExtendsHelp[] =
    "extends = \"base.toml\"\n      base file, relative to this file, which overrides its keys\n";

}  // namespace

std::string to_toml(const Config& config) {
  const auto schema = make_config_schema();
  std::string text;
  for (const auto& table : list_config_tables()) {
    if (table == "attention")
      text += uses_attention(config) ? format_attention_tables(config) : "";
    else
      text += (text.empty() ? "[" : "\n[") + table + "]\n" + format_table(config, table, schema);
  }
  return text;
}

std::string format_config_help(const std::string& word) {
  std::string text, heading;
  std::vector<std::string> names;
  const auto add = [&](const std::string& table, const OptionSpec& spec, const KeyScope& scope,
                       const std::string& kind = "") {
    names.push_back(table + "." + spec.name);
    const bool found = table == word || names.back().find(word) != std::string::npos ||
                       (!kind.empty() && (kind + "." + spec.name).find(word) != std::string::npos);
    if (found) text += std::exchange(heading, "") + format_help_line(spec, scope);
  };
  const auto schema = make_config_schema();
  for (const auto& table : list_config_tables()) {
    for (const AttentionKind& kind : list_attention_kinds()) {
      if (table != "attention") break;
      const std::string kind_table = table + "." + kind.name;
      heading = "\n[attention]  # where model.attention = " + quote_toml_string(kind.name) + "; in lists: [" +
                kind_table + "]\n";
      for (const auto& spec : kind.options) add(table, spec, {}, kind_table);
      if (word.empty() || word == kind_table) text += std::exchange(heading, "");
    }
    heading = "\n[" + table + "]\n";
    for (const auto& key : schema)
      if (key.table_name == table) add(table, key.spec, key.scope);
  }
  if (std::string_view(kExtends).find(word) != std::string_view::npos) text = kExtendsHelp + text;
  if (!text.empty()) return text.substr(text.find_first_not_of('\n'));
  for (const std::string& name : std::vector(names)) names.push_back(name.substr(name.find('.') + 1));
  const std::string near = find_nearest_name(word, names);
  throw ConfigError("no config key has \"" + word + "\" in its name" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

std::vector<OptionSpec> list_config_keys() {
  std::vector<OptionSpec> keys;
  const auto add = [&](const std::string& table, OptionSpec spec) {
    spec.name = table + "." + spec.name;
    keys.push_back(std::move(spec));
  };
  for (const SchemaKey& key : make_config_schema()) add(key.table_name, key.spec);
  for (const AttentionKind& kind : list_attention_kinds())
    for (const OptionSpec& spec : kind.options) {
      add("attention", spec);
      add("attention." + kind.name, spec);
    }
  return keys;
}

std::vector<std::string> find_differing_keys(const Config& a, const Config& b) {
  const auto schema = make_config_schema();
  std::vector<std::string> names;
  for (const auto& table : list_config_tables()) {
    for (const auto& key : schema) {
      if (key.table_name != table || (key.find_unmet_condition(a) && key.find_unmet_condition(b))) continue;
      if (key.get(a) != key.get(b)) names.push_back(key.name());
    }
    if (table != "attention") continue;
    const auto entries_a = list_attention_entries(a), entries_b = list_attention_entries(b);
    auto all_entries = entries_a;
    all_entries.insert(entries_b.begin(), entries_b.end());
    for (const auto& [name, value] : all_entries) {
      const auto entry_a = entries_a.find(name), entry_b = entries_b.find(name);
      const bool equal =
          entry_a != entries_a.end() && entry_b != entries_b.end() && entry_a->second == entry_b->second;
      if (!equal) names.push_back(name);
    }
  }
  return names;
}

FixedKeys find_keys_fixed_by_training(const Config& trained, const Config& config) {
  FixedKeys keys;
  for (const SchemaKey& key : make_config_schema())
    if (key.spec.is_fixed_by_training && key.get(trained) != key.get(config) &&
        !(key.find_unmet_condition(trained) && key.find_unmet_condition(config)))
      keys.emplace_back(key.name(), key.format(key.get(trained)));
  if (uses_attention(trained) && uses_attention(config))
    add_attention_keys_fixed_by_training(trained, config, keys);
  return keys;
}

std::string explain_unused_key(const Config& config, const std::string& name) {
  if (name.starts_with(kAttentionTable)) {
    if (!uses_attention(config)) return explain_unused_key(config, "model.attention");
    if (list_attention_entries(config).contains(name)) return "";
    if (has_several_kinds(config)) return "no kind of model.attention has such a key";
    return "attention kind " + quote_toml_string(config.model.attention.front()) + " has no such key";
  }
  for (const auto& key : make_config_schema()) {
    if (key.name() != name) continue;
    const KeyCondition* broken = key.find_unmet_condition(config);
    return broken ? describe_unmet_condition(*broken, config) : "";
  }
  throw std::out_of_range("no config key " + name);
}

bool may_change_on_resume(const std::string& name) {
  const auto schema = make_config_schema();
  return std::any_of(schema.begin(), schema.end(), [&](const SchemaKey& key) {
    return key.name() == name && key.spec.may_change_on_resume;
  });
}

std::string format_config_value(const Config& config, const std::string& name) {
  for (const auto& key : make_config_schema())
    if (key.name() == name) return key.format(key.get(config));
  if (!name.starts_with(kAttentionTable)) throw std::out_of_range("no config key " + name);
  // Attention kinds that the config does not use have no entries.
  const auto entries = list_attention_entries(config);
  const auto found = entries.find(name);
  return found == entries.end() ? "none" : format_option_value(found->second);
}

}  // namespace tapeformer
