#include "train/config/part_keys.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "train/config/value.h"

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;

// An option with the kinds that have it, and the default of each kind.
struct OwnedOption {
  OptionSpec spec;
  Names owners;
  std::vector<OptionValue> defaults;

  const OptionValue& find_default(const std::string& kind) const {
    const auto owner = std::find(owners.begin(), owners.end(), kind);
    return owner == owners.end() ? spec.default_value : defaults[static_cast<size_t>(owner - owners.begin())];
  }
};

// Returns the kinds with an option as text, such as `the data sets "a", "b", "c" and 4 others`.
std::string describe_owners(const std::string& noun, const Names& owners) {
  constexpr size_t kMaxNames = 4;
  if (owners.size() <= kMaxNames)
    return "the " + noun + (owners.size() > 1 ? "s " : " ") + join_quoted(owners);
  std::string text = "the " + noun + "s ";
  for (size_t i = 0; i + 1 < kMaxNames; ++i) text += (i > 0 ? ", " : "") + quote_toml_string(owners[i]);
  return text + " and " + std::to_string(owners.size() - kMaxNames + 1) + " others";
}

// Kinds can have the same option with different defaults and under different conditions.
bool are_equal(const OptionSpec& a, const OptionSpec& b) {
  return a.default_value.index() == b.default_value.index() && a.min == b.min && a.max == b.max &&
         a.choices == b.choices;
}

std::vector<OwnedOption> list_owned_options(const PartTable& table) {
  std::vector<OwnedOption> options;
  for (const PartKind& kind : table.kinds)
    for (const OptionSpec& spec : kind.options) {
      const auto known = std::find_if(options.begin(), options.end(),
                                      [&](const OwnedOption& o) { return o.spec.name == spec.name; });
      if (known == options.end()) {
        options.push_back({spec, {kind.name}, {spec.default_value}});
        continue;
      }
      if (!are_equal(known->spec, spec))
        throw std::invalid_argument(table.noun + " \"" + kind.name + "\": option \"" + spec.name +
                                    "\" differs from the option of \"" + known->owners.front() + "\"");
      known->owners.push_back(kind.name);
      known->defaults.push_back(spec.default_value);
    }
  return options;
}

const PartKind* find_kind(const std::vector<PartKind>& kinds, const std::string& name) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const PartKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

const OptionSpec* find_option(const PartKind& kind, const std::string& name) {
  const auto found = std::find_if(kind.options.begin(), kind.options.end(),
                                  [&](const OptionSpec& spec) { return spec.name == name; });
  return found == kind.options.end() ? nullptr : &*found;
}

// Returns whether the condition of an option holds in a config whose kind has the option.
bool is_condition_met(const PartTable& table, const std::string& option, const Config& config) {
  const PartKind* const kind = find_kind(table.kinds, table.get_kind(config));
  if (!kind) return true;
  OptionValues values(kind->options);
  for (const auto& [name, value] : table.get_options(config).values_by_name()) values.set(name, value);
  return std::all_of(kind->options.begin(), kind->options.end(), [&](const OptionSpec& spec) {
    return spec.name != option || is_option_used(spec, kind->options, values);
  });
}

KeyScope make_part_scope(const std::shared_ptr<const PartTable>& shared, const OwnedOption& option) {
  const PartTable& table = *shared;
  const Names& owners = option.owners;
  KeyScope scope;
  if (owners.size() < table.kinds.size())
    scope.push_back({describe_owners(table.noun, owners), table.table_name + "." + table.selector,
                     [get_kind = table.get_kind, owners](const Config& config) {
                       return is_listed(owners, get_kind(config));
                     }});
  for (const PartKind& kind : table.kinds) {
    KeyScope conditions;  // of the option, and of the options that these name
    for (const OptionSpec* spec = find_option(kind, option.spec.name); spec && !spec->used_if.option.empty();
         spec = find_option(kind, spec->used_if.option))
      conditions.push_back(
          {"configs where " + table.table_name + "." + describe_condition(*spec, kind.options),
           table.table_name + "." + spec->used_if.option, [shared, name = spec->name](const Config& config) {
             return is_condition_met(*shared, name, config);
           }});
    if (conditions.empty()) continue;
    scope.insert(scope.end(), conditions.rbegin(), conditions.rend());
    break;
  }
  return scope;
}

}  // namespace

std::vector<std::string> list_part_names(const std::vector<PartKind>& kinds) {
  Names names;
  for (const PartKind& kind : kinds) names.push_back(kind.name);
  return names;
}

void add_part_keys(const PartTable& table, std::vector<SchemaKey>& keys) {
  const auto shared = std::make_shared<const PartTable>(table);
  for (const OwnedOption& option : list_owned_options(table)) {
    const OptionSpec& spec = option.spec;
    SchemaKey key;
    key.table_name = table.table_name;
    key.spec = spec;
    key.scope = make_part_scope(shared, option);
    key.get_default = [option, get = table.get_kind](const Config& config) {
      return option.find_default(get(config));
    };
    key.get = [name = spec.name, get = table.get_options,
               get_default = key.get_default](const Config& config) {
      const auto& values = get(config).values_by_name();
      const auto found = values.find(name);
      return found == values.end() ? get_default(config) : found->second;
    };
    key.set = [name = spec.name, get = table.get_mutable_options](Config& config, const OptionValue& value) {
      get(config).set(name, value);
    };
    key.reset = [name = spec.name, get = table.get_mutable_options](Config& config) {
      get(config).erase(name);
    };
    keys.push_back(std::move(key));
  }
}

}  // namespace tapeformer
