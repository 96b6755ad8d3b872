// Config keys of the kinds of a part, such as the optimizers. Internal to the config code.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "core/options/part.h"
#include "train/config/schema_key.h"

namespace tapeformer {

// A config table whose key `selector` names a kind. The other options of the kind are in OptionValues.
struct PartTable {
  std::string table_name, selector;  // for example "optimizer" and "kind"
  std::string noun;                  // for example "optimizer", in messages
  std::function<const std::string&(const Config&)> get_kind;
  std::function<const OptionValues&(const Config&)> get_options;
  std::function<OptionValues&(Config&)> get_mutable_options;
  std::vector<PartKind> kinds;
};

// Returns the names, help texts and options of registered kinds.
template <class Kind>
std::vector<PartKind> list_parts(const std::deque<Kind>& kinds) {
  std::vector<PartKind> parts;
  for (const Kind& kind : kinds) parts.push_back({kind.name, kind.help, kind.options});
  return parts;
}

// Returns the names of the kinds.
std::vector<std::string> list_part_names(const std::vector<PartKind>& kinds);

// Appends one key for each option of the kinds. The key has an effect in configs that select one of the kinds
// with this option, and if OptionSpec::used_if holds. Kinds may have different defaults for an option. Throws
// std::invalid_argument if two kinds have options of the same name but different types or ranges.
void add_part_keys(const PartTable& table, std::vector<SchemaKey>& keys);

}  // namespace tapeformer
