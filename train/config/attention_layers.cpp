#include <algorithm>
#include <map>
#include <optional>

#include "train/config/layers.h"
#include "train/config/problems.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

using Kinds = std::vector<std::string>;

bool has_one_kind(const Kinds& kinds) {
  return std::all_of(kinds.begin(), kinds.end(), [&](const std::string& k) { return k == kinds.front(); });
}

// Returns the value of model.attention in a config layer, or std::nullopt if the layer does not set
// model.attention. Skips values of the wrong type, which ConfigLayerApplier reports.
std::optional<Kinds> read_kinds(const ConfigLayer& layer) {
  std::optional<Kinds> kinds;
  for (const auto& setting : layer.settings) {
    if (setting.name() != "model.attention") continue;
    kinds = Kinds{};
    if (const auto* text = std::get_if<std::string>(&setting.value.value)) kinds = Kinds{*text};
    if (const auto* list = std::get_if<std::vector<RawValue>>(&setting.value.value))
      for (const RawValue& element : *list)
        if (const auto* text = std::get_if<std::string>(&element.value)) kinds->push_back(*text);
  }
  return kinds;
}

// Returns the attention kinds to which the [attention] tables of each config layer apply. The kinds of a
// config layer are the value of model.attention in the first layer of this sequence that sets the key:
// - the config layer itself
// - earlier layers, beginning with the nearest
// - later layers, beginning with the nearest
// If no layer sets model.attention, the kinds are `default_kinds`.
std::vector<Kinds> list_kinds_of_layers(const std::vector<ConfigLayer>& layers, const Kinds& default_kinds) {
  std::optional<Kinds> first;
  for (const auto& layer : layers)
    if (!first) first = read_kinds(layer);
  Kinds kinds = first.value_or(default_kinds);
  std::vector<Kinds> all;
  for (const auto& layer : layers) {
    kinds = read_kinds(layer).value_or(kinds);
    all.push_back(kinds);
  }
  return all;
}

// An option of an attention kind, from a setting "attention.OPTION" or "attention.KIND.OPTION".
struct KindOption {
  std::string kind;  // empty if the setting does not name the kind
  std::string option;
};

KindOption split_kind_option(const std::string& key) {
  const size_t dot = key.find('.');
  if (dot == std::string::npos) return {"", key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

bool is_kind(const std::string& name) {
  const auto& kinds = list_attention_kinds();
  return std::any_of(kinds.begin(), kinds.end(),
                     [&](const AttentionKind& kind) { return kind.name == name; });
}

// An object that checks the [attention] tables of config layers and copies their options to config.attention.
class AttentionApplier {
 public:
  AttentionApplier(const ConfigLoadOptions& options, const std::vector<SchemaKey>& schema, Config& config,
                   std::vector<ConfigProblem>& problems)
      : options_(options), schema_(schema), config_(config), problems_(problems) {}

  // Checks that each option in the [attention] tables of `layer` belongs to one of `kinds` and has a valid
  // value. Copies the valid options to config.attention.
  void apply(const ConfigLayer& layer, const Kinds& kinds) {
    // A map from each option, "KIND.OPTION", to the name of the first setting of the option.
    std::map<std::string, std::string> names;
    for (const auto& setting : layer.settings) {
      if (setting.table_name != "attention") continue;
      auto [kind, option] = split_kind_option(setting.key);
      if (kind.empty() && has_one_kind(kinds)) kind = kinds.front();
      const std::string& name = names.try_emplace(kind + "." + option, setting.name()).first->second;
      if (name != setting.name())
        problems_.push_back({setting.key_position, setting.name() + ": is the same option as " + name +
                                                       ", which is also set; remove one of them"});
      else if (is_kind(setting.key))
        report_value_for_table(setting);
      else if (kind.empty())
        report_missing_kind(setting, option, kinds);
      else if (!is_listed(kinds, kind))
        report_other_kind(setting, kind, kinds);
      else
        apply(setting, kind, option);
    }
  }

 private:
  void apply(const Setting& setting, const std::string& kind, const std::string& option) {
    const auto& specs = find_attention_kind(kind).options;
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](auto& s) { return s.name == option; });
    if (spec == specs.end()) return report_unknown(setting, kind, option, specs);
    std::string wrong;
    const auto value = convert_to_option_value(setting.value, *spec, wrong);
    const auto table = config_.attention.find(kind);
    if (!value)
      problems_.push_back({setting.value_position, setting.name() + ": " + wrong});
    else if (table != config_.attention.end())
      table->second.set(option, *value);
  }

  // Returns whether a setting comes from a --set option that applies to several configs. Such an option can
  // belong to an attention kind that this config does not use.
  bool is_shared(const Setting& setting) const {
    return options_.unused_key_policy == UnusedKeyPolicy::ignore &&
           is_set_option_position(setting.key_position);
  }

  // Reports a setting "attention.KIND" whose value is not a table, such as --set attention.local=3.
  void report_value_for_table(const Setting& setting) {
    const auto& specs = find_attention_kind(setting.key).options;
    const std::string example = specs.empty() ? "" : ", such as " + setting.name() + "." + specs.front().name;
    problems_.push_back({setting.value_position, setting.name() +
                                                     ": expected the table of options of the kind" + example +
                                                     ", got " + setting.value.description});
  }

  void report_missing_kind(const Setting& setting, const std::string& option, const Kinds& kinds) {
    const auto owner = std::find_if(kinds.begin(), kinds.end(), [&](const std::string& kind) {
      return has_option(find_attention_kind(kind).options, option);
    });
    const std::string& example = owner == kinds.end() ? kinds.front() : *owner;
    problems_.push_back({setting.key_position, setting.name() +
                                                   ": model.attention has several kinds: use a table " +
                                                   "per kind, such as [attention." + example + "]"});
  }

  void report_other_kind(const Setting& setting, const std::string& kind, const Kinds& kinds) {
    if (is_shared(setting) && is_kind(kind)) return;
    if (!uses_attention(config_)) return;  // without attention layers, [attention] has no effect
    const std::string nearest = find_nearest_name(kind, kinds);
    problems_.push_back({setting.key_position,
                         setting.name() + ": model.attention has no kind " + quote_toml_string(kind) +
                             (nearest.empty() ? "" : "; did you mean " + quote_toml_string(nearest) + "?")});
  }

  void report_unknown(const Setting& setting, const std::string& kind, const std::string& option,
                      const std::vector<OptionSpec>& specs) {
    const bool is_of_another_kind =
        std::any_of(list_attention_kinds().begin(), list_attention_kinds().end(),
                    [&](const AttentionKind& other) { return has_option(other.options, option); });
    if (is_shared(setting) && is_of_another_kind) return;
    if (!uses_attention(config_)) return;  // without attention layers, [attention] has no effect
    const std::string prefix = setting.key.substr(0, setting.key.size() - option.size());
    std::vector<std::string> names;
    for (const auto& spec : specs) names.push_back(prefix + spec.name);
    problems_.push_back({setting.key_position, describe_unknown_key(setting, names, kind, schema_)});
  }

  const ConfigLoadOptions& options_;
  const std::vector<SchemaKey>& schema_;
  Config& config_;
  std::vector<ConfigProblem>& problems_;
};

}  // namespace

AttentionTables make_default_attention_tables(const std::vector<std::string>& kinds) {
  AttentionTables tables;
  for (const std::string& kind : kinds) tables[kind] = find_attention_kind(kind).default_options();
  return tables;
}

void apply_attention_tables(const std::vector<ConfigLayer>& layers, const ConfigLoadOptions& options,
                            const std::vector<SchemaKey>& schema, Config& config,
                            std::vector<ConfigProblem>& problems) {
  const std::vector<Kinds> kinds = list_kinds_of_layers(layers, config.model.attention);
  const auto are_known = [&](const Kinds& names) {
    return !names.empty() && std::all_of(names.begin(), names.end(), is_kind);
  };
  config.attention.clear();
  if (are_known(kinds.back())) config.attention = make_default_attention_tables(kinds.back());
  AttentionApplier applier(options, schema, config, problems);
  for (size_t i = 0; i < layers.size(); ++i)
    if (are_known(kinds[i])) applier.apply(layers[i], kinds[i]);
}

}  // namespace tapeformer
