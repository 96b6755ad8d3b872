#include "train/config/problems.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/base/errors.h"
#include "core/options/options.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

std::optional<std::string> find_table_with_key(const std::string& key, const std::vector<SchemaKey>& schema) {
  for (const auto& candidate : schema)
    if (candidate.spec.name == key) return candidate.table_name;
  return std::nullopt;
}

// Returns a command that helps to find the name of a key. If a word of `key` occurs in `names`, the command
// lists the keys with this word, and otherwise the keys of `table`. If `table` is empty, it lists all keys.
std::string describe_key_search(const std::string& key, const std::vector<std::string>& names,
                                const std::string& table) {
  constexpr size_t kMinWordSize = 3;
  const std::string command = "; \"tapeformer train --help";
  for (size_t begin = 0, end; begin < key.size(); begin = end + 1) {
    end = std::min(key.find_first_of("_-.", begin), key.size());
    const std::string word = key.substr(begin, end - begin);
    if (word.size() >= kMinWordSize && std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return name.find(word) != std::string::npos;
        }))
      return command + " " + word + "\" lists the keys with \"" + word + "\" in their names";
  }
  return command +
         (table.empty() ? "\" lists all keys" : " " + table + "\" lists the keys of [" + table + "]");
}

}  // namespace

std::string format_problems(std::vector<ConfigProblem> problems, const std::vector<std::string>& files) {
  const auto rank = [&](const ConfigProblem& p) {
    const auto file = std::find(files.begin(), files.end(), p.position.file);
    return std::make_tuple(file - files.begin(), p.position.line, p.position.column);
  };
  std::stable_sort(problems.begin(), problems.end(),
                   [&](const ConfigProblem& a, const ConfigProblem& b) { return rank(a) < rank(b); });
  std::string text;
  for (const auto& p : problems) {
    // The position of a --set option contains the key, so the key is removed from the start of the message.
    const std::string option = is_set_option_position(p.position)
                                   ? p.position.file.substr(p.position.file.find(' ') + 1) + ": "
                                   : "";
    const bool twice = !option.empty() && p.message.starts_with(option);
    text += concat_text(text.empty() ? "" : "\n", p.position.to_string(), ": ",
                        p.message.substr(twice ? option.size() : 0));
  }
  return text;
}

std::string describe_unknown_key(const Setting& setting, const std::vector<std::string>& names,
                                 const std::string& attention_kind, const std::vector<SchemaKey>& schema) {
  const bool is_option = !attention_kind.empty();
  const std::string text = "unknown key " + setting.name() +
                           (is_option ? " of attention kind " + quote_toml_string(attention_kind) : "");
  if (const auto table = find_table_with_key(setting.key, schema))
    return text + "; did you mean " + *table + "." + setting.key + "?";
  const std::string near = find_nearest_name(setting.key, names);
  if (!near.empty()) return text + "; did you mean " + setting.table_name + "." + near + "?";
  return text + describe_key_search(setting.key, names,
                                    setting.table_name + (is_option ? "." + attention_kind : ""));
}

std::string describe_key_without_table(const Setting& setting, const std::vector<SchemaKey>& schema) {
  std::vector<std::string> names = {"extends"};
  for (const auto& key : schema) names.push_back(key.spec.name);
  std::string near =
      find_table_with_key(setting.key, schema) ? setting.key : find_nearest_name(setting.key, names);
  if (const auto table = find_table_with_key(near, schema)) near = *table + "." + near;
  return "unknown key " + setting.key + " outside of all tables" +
         (near.empty() ? describe_key_search(setting.key, names, "") : "; did you mean " + near + "?");
}

std::string describe_unknown_table(const std::string& name) {
  const std::string near = find_nearest_name(name, list_config_tables());
  const std::string text = "unknown table [" + name + "]";
  if (!near.empty()) return text + "; did you mean [" + near + "]?";
  std::string tables;
  for (const std::string& table : list_config_tables())
    tables += (tables.empty() ? "[" : ", [") + table + "]";
  return text + "; the tables are " + tables;
}

bool is_config_table(const std::string& name) {
  const auto tables = list_config_tables();
  return std::find(tables.begin(), tables.end(), name) != tables.end();
}

}  // namespace tapeformer
