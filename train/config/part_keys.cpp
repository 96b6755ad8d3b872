#include "train/config/part_keys.h"

#include <algorithm>
#include <stdexcept>

#include "train/config/value.h"

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;

// Returns a list of the names in quotes, such as `"a", "b" and "c"`.
std::string join_names(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + quote_toml_string(names[i]);
  return text;
}

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// An option with the kinds that have it.
struct OwnedOption {
  OptionSpec spec;
  Names owners;
};

bool are_equal(const OptionSpec& a, const OptionSpec& b) {
  return a.default_value == b.default_value && a.min == b.min && a.max == b.max && a.choices == b.choices &&
         a.used_if.option == b.used_if.option;
}

std::vector<OwnedOption> list_owned_options(const PartTable& table) {
  std::vector<OwnedOption> options;
  for (const PartKind& kind : table.kinds)
    for (const OptionSpec& spec : kind.options) {
      const auto known = std::find_if(options.begin(), options.end(),
                                      [&](const OwnedOption& o) { return o.spec.name == spec.name; });
      if (known == options.end()) {
        options.push_back({spec, {kind.name}});
        continue;
      }
      if (!are_equal(known->spec, spec))
        throw std::invalid_argument(table.noun + " \"" + kind.name + "\": option \"" + spec.name +
                                    "\" differs from the option of \"" + known->owners.front() + "\"");
      known->owners.push_back(kind.name);
    }
  return options;
}

// Returns the values of all options, those that the config does not set with their defaults.
OptionValues complete(const std::vector<OwnedOption>& options, const OptionValues& set) {
  OptionValues values;
  for (const OwnedOption& option : options) values.set(option.spec.name, option.spec.default_value);
  for (const auto& [name, value] : set.values_by_name()) values.set(name, value);
  return values;
}

KeyScope make_part_scope(const PartTable& table, const OwnedOption& option,
                         const std::vector<OwnedOption>& options) {
  const Names& owners = option.owners;
  KeyScope scope;
  if (owners.size() < table.kinds.size())
    scope.push_back({"the " + table.noun + (owners.size() > 1 ? "s " : " ") + join_names(owners),
                     table.table_name + "." + table.selector,
                     [get_kind = table.get_kind, owners](const Config& config) {
                       return contains(owners, get_kind(config));
                     }});
  if (option.spec.used_if.option.empty()) return scope;
  std::vector<OptionSpec> specs;
  for (const OwnedOption& other : options) specs.push_back(other.spec);
  scope.push_back({"configs with " + table.table_name + "." + describe_condition(option.spec, specs),
                   table.table_name + "." + option.spec.used_if.option,
                   [spec = option.spec, specs, options, get = table.get_options](const Config& config) {
                     return is_option_used(spec, specs, complete(options, get(config)));
                   }});
  return scope;
}

}  // namespace

std::vector<std::string> list_part_names(const std::vector<PartKind>& kinds) {
  Names names;
  for (const PartKind& kind : kinds) names.push_back(kind.name);
  return names;
}

void add_part_keys(const PartTable& table, std::vector<SchemaKey>& keys) {
  const std::vector<OwnedOption> options = list_owned_options(table);
  for (const OwnedOption& option : options) {
    const OptionSpec& spec = option.spec;
    SchemaKey key;
    key.table_name = table.table_name;
    key.spec = spec;
    key.scope = make_part_scope(table, option, options);
    key.get = [spec, get = table.get_options](const Config& config) {
      const auto& values = get(config).values_by_name();
      const auto found = values.find(spec.name);
      return found == values.end() ? spec.default_value : found->second;
    };
    key.set = [spec, get = table.get_mutable_options](Config& config, const OptionValue& value) {
      if (value == spec.default_value)
        get(config).erase(spec.name);
      else
        get(config).set(spec.name, value);
    };
    keys.push_back(std::move(key));
  }
}

}  // namespace tapeformer
