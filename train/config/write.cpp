#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/errors.h"
#include "train/config/config.h"
#include "train/config/schema.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr std::string_view kAttentionTable = "attention.";

// Returns a table as TOML text. Options of attention kinds are written with `integers_only` = false, because
// an OptionSpec has no lists of integers.
std::string table_text(const Config& config, const std::string& table, const std::vector<SchemaKey>& schema) {
  std::string text;
  if (table == "attention") {
    if (!uses_attention(config)) return "";
    for (const auto& [name, value] : config.attention.all())
      text += name + " = " + option_text(value, false) + "\n";
    return text;
  }
  for (const auto& key : schema)
    if (key.table == table && !key.broken_condition(config))
      text += key.spec.name + " = " + option_text(key.get(config), key.integers_only) + "\n";
  return text;
}

std::string help_line(const OptionSpec& spec, const ListForm& form, const KeyScope& scope) {
  std::string owners;
  for (const KeyCondition& condition : scope) owners += (owners.empty() ? "; for " : ", ") + condition.owner;
  return "  " + spec.name + " = " + option_text(spec.default_value, form.integers_only) + "\n      " +
         spec.help + " (" + describe_expected(spec, form) + owners + ")\n";
}

constexpr char kExtends[] = "extends";
constexpr char kExtendsHelp[] =
    "extends = \"base.toml\"\n      base file, relative to this file, which overrides its keys\n";

}  // namespace

std::string to_toml(const Config& config) {
  const auto schema = config_schema(AttentionCatalogue{});
  std::string text;
  for (const auto& table : config_tables()) {
    const std::string keys = table_text(config, table, schema);
    if (keys.empty() && table == "attention" && !uses_attention(config)) continue;
    text += (text.empty() ? "[" : "\n[") + table + "]\n" + keys;
  }
  return text;
}

std::string config_help(const AttentionCatalogue& catalogue, const std::string& word) {
  std::string text, heading;
  std::vector<std::string> names;
  const auto add = [&](const std::string& table, const OptionSpec& spec, const ListForm& form,
                       const KeyScope& scope) {
    names.push_back(table + "." + spec.name);
    if (table != word && names.back().find(word) == std::string::npos) return;
    text += std::exchange(heading, "") + help_line(spec, form, scope);
  };
  const auto schema = config_schema(catalogue);
  for (const auto& table : config_tables()) {
    for (const auto& kind : table == "attention" ? catalogue.names : std::vector<std::string>()) {
      heading = "\n[attention]  # where model.attention = " + quoted(kind) + "\n";
      for (const auto& spec : catalogue.options(kind)) add(table, spec, {}, {});
      if (word.empty()) text += std::exchange(heading, "");
    }
    heading = "\n[" + table + "]\n";
    for (const auto& key : schema)
      if (key.table == table) add(table, key.spec, {key.integers_only, key.count}, key.scope);
  }
  if (std::string_view(kExtends).find(word) != std::string_view::npos) text = kExtendsHelp + text;
  if (!text.empty()) return text.substr(text.find_first_not_of('\n'));
  for (const std::string& name : std::vector(names)) names.push_back(name.substr(name.find('.') + 1));
  const std::string near = nearest_name(word, names);
  throw ConfigError("no config key has \"" + word + "\" in its name" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

std::vector<std::string> differing_keys(const Config& a, const Config& b) {
  const auto schema = config_schema(AttentionCatalogue{});
  std::vector<std::string> names;
  for (const auto& table : config_tables()) {
    for (const auto& key : schema) {
      if (key.table != table || (key.broken_condition(a) && key.broken_condition(b))) continue;
      if (key.get(a) != key.get(b)) names.push_back(key.name());
    }
    if (table != "attention" || (!uses_attention(a) && !uses_attention(b))) continue;
    auto either = a.attention.all();
    either.insert(b.attention.all().begin(), b.attention.all().end());
    for (const auto& entry : either) {
      const auto in_a = a.attention.all().find(entry.first), in_b = b.attention.all().find(entry.first);
      const bool both = in_a != a.attention.all().end() && in_b != b.attention.all().end();
      if (!both || in_a->second != in_b->second) names.push_back("attention." + entry.first);
    }
  }
  return names;
}

std::string why_unused(const Config& config, const std::string& name, const AttentionCatalogue& catalogue) {
  if (name.starts_with(kAttentionTable)) {
    if (!uses_attention(config)) return why_unused(config, "model.attention", catalogue);
    if (config.attention.all().contains(name.substr(kAttentionTable.size()))) return "";
    return "attention kind " + quoted(config.model.attention) + " has no such key";
  }
  for (const auto& key : config_schema(catalogue)) {
    if (key.name() != name) continue;
    const KeyCondition* broken = key.broken_condition(config);
    return broken ? broken_text(*broken, config) : "";
  }
  throw std::out_of_range("no config key " + name);
}

bool may_change_on_resume(const std::string& name) {
  const auto schema = config_schema(AttentionCatalogue{});
  return std::any_of(schema.begin(), schema.end(),
                     [&](const SchemaKey& key) { return key.name() == name && key.changeable; });
}

std::string config_value_text(const Config& config, const std::string& name) {
  for (const auto& key : config_schema(AttentionCatalogue{}))
    if (key.name() == name) return option_text(key.get(config), key.integers_only);
  if (!name.starts_with(kAttentionTable)) throw std::out_of_range("no config key " + name);
  // The options of the selected attention kind may lack `name`.
  const auto& options = config.attention.all();
  const auto found = options.find(name.substr(kAttentionTable.size()));
  return found == options.end() ? "none" : option_text(found->second, false);
}

}  // namespace tapeformer
