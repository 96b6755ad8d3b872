#include "train/config/problems.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/errors.h"
#include "core/options.h"

namespace tapeformer {
namespace {

std::optional<std::string> find_table_with_key(const std::string& key, const std::vector<SchemaKey>& schema) {
  for (const auto& candidate : schema)
    if (candidate.spec.name == key) return candidate.table_name;
  return std::nullopt;
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
                                 const std::string& context, const std::vector<SchemaKey>& schema) {
  const std::string text = "unknown key " + setting.name() + context;
  if (const auto table = find_table_with_key(setting.key, schema))
    return text + "; did you mean " + *table + "." + setting.key + "?";
  const std::string near = find_nearest_name(setting.key, names);
  return text + (near.empty() ? "" : "; did you mean " + setting.table_name + "." + near + "?");
}

std::string describe_key_without_table(const Setting& setting, const std::vector<SchemaKey>& schema) {
  std::vector<std::string> names = {"extends"};
  for (const auto& key : schema) names.push_back(key.spec.name);
  std::string near =
      find_table_with_key(setting.key, schema) ? setting.key : find_nearest_name(setting.key, names);
  if (const auto table = find_table_with_key(near, schema)) near = *table + "." + near;
  return "unknown key " + setting.key + " outside of all tables" +
         (near.empty() ? "" : "; did you mean " + near + "?");
}

std::string describe_unknown_table(const std::string& name) {
  const std::string near = find_nearest_name(name, list_config_tables());
  return "unknown table [" + name + "]" + (near.empty() ? "" : "; did you mean [" + near + "]?");
}

bool is_config_table(const std::string& name) {
  const auto tables = list_config_tables();
  return std::find(tables.begin(), tables.end(), name) != tables.end();
}

}  // namespace tapeformer
