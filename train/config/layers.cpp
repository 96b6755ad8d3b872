#include "train/config/layers.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "train/config/problems.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// A reader of a config file and the files that this file extends. To detect cycles, `chain` contains the
// canonical paths of the files that extend the current file, directly or indirectly.
class FileReader {
 public:
  FileReader(ConfigFiles& files, std::vector<ConfigProblem>& problems) : files_(files), problems_(problems) {}

  void read(const std::string& path, const ConfigPosition* reached_from,
            const std::vector<std::string>& chain) {
    std::error_code ignored;
    const std::string identity = fs::weakly_canonical(path, ignored).string();
    if (std::find(chain.begin(), chain.end(), identity) != chain.end()) {
      std::string cycle;
      for (const auto& file : chain) cycle += fs::path(file).filename().string() + " -> ";
      problems_.push_back({*reached_from, "extends: files extend each other in a cycle: " + cycle +
                                              fs::path(identity).filename().string()});
      return;
    }
    files_.paths.push_back(path);
    ConfigLayer layer = parse_config_file(path, reached_from, problems_);
    const auto extends = [](const Setting& s) { return s.table_name.empty() && s.key == "extends"; };
    const auto found = std::find_if(layer.settings.begin(), layer.settings.end(), extends);
    if (found != layer.settings.end()) {
      std::vector<std::string> longer = chain;
      longer.push_back(identity);
      read_base(path, *found, longer);
      std::erase_if(layer.settings, extends);
    }
    files_.layers.push_back(std::move(layer));
  }

 private:
  void read_base(const std::string& path, const Setting& extends, const std::vector<std::string>& chain) {
    if (const auto* base = std::get_if<std::string>(&extends.value.value))
      read((fs::path(path).parent_path() / *base).lexically_normal().string(), &extends.value_position,
           chain);
    else
      problems_.push_back(
          {extends.value_position, "extends: expected a string, got " + extends.value.description});
  }

  ConfigFiles& files_;
  std::vector<ConfigProblem>& problems_;
};

}  // namespace

ConfigFiles read_config_files(const std::string& path, std::vector<ConfigProblem>& problems) {
  ConfigFiles files;
  if (!path.empty()) FileReader(files, problems).read(path, nullptr, {});
  return files;
}

void ConfigLayerApplier::apply(const ConfigLayer& layer, Config& config) {
  std::set<std::string> unknown_tables;
  for (const auto& table : layer.tables)
    if (!is_config_table(table.name) && unknown_tables.insert(table.name).second)
      problems_.push_back({table.position, describe_unknown_table(table.name)});

  std::set<std::string> names;
  for (const auto& setting : layer.settings) {
    names.insert(setting.name());
    const bool unknown = !setting.table_name.empty() && !is_config_table(setting.table_name);
    if (unknown && !unknown_tables.contains(setting.table_name))
      problems_.push_back({setting.key_position, describe_unknown_table(setting.table_name)});
    if (!unknown && setting.table_name != "attention") apply_setting(setting, config);
  }
  for (const SchemaKey& key : schema_)
    if (names.contains(key.name()) && !names.contains(key.excluded_key) && !key.is_default(config))
      for (const SchemaKey& other : schema_)
        if (other.name() == key.excluded_key) other.reset(config);
}

void ConfigLayerApplier::apply_setting(const Setting& setting, Config& config) {
  if (setting.table_name.empty() && is_config_table(setting.key)) {
    const bool is_table = setting.value.description.starts_with("a table");
    problems_.push_back({setting.value_position,
                         setting.key + (is_table ? ": set one key at a time, " + setting.key + ".KEY=VALUE"
                                                 : ": expected a table, got " + setting.value.description)});
    return;
  }
  if (setting.table_name.empty()) {
    problems_.push_back({setting.key_position, describe_key_without_table(setting, schema_)});
    return;
  }
  std::vector<std::string> names;
  const SchemaKey* key = nullptr;
  for (const auto& candidate : schema_) {
    if (candidate.table_name != setting.table_name) continue;
    names.push_back(candidate.spec.name);
    if (candidate.spec.name == setting.key) key = &candidate;
  }
  if (!key && is_removed_key(setting.name()) && !is_set_option_position(setting.key_position)) return;
  if (!key) {
    problems_.push_back({setting.key_position, describe_unknown_key(setting, names, "", schema_)});
    return;
  }
  std::string wrong;
  const auto value = convert_to_option_value(setting.value, key->spec, wrong);
  if (value && key->find_error) wrong = key->find_error(*value);
  if (!wrong.empty()) {
    problems_.push_back({setting.value_position, setting.name() + ": " + wrong});
    return;
  }
  key->set(config, *value);
  positions_[setting.name()] = setting.value_position;
}

const ConfigPosition* ConfigLayerApplier::find_position(const std::string& name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &found->second;
}

}  // namespace tapeformer
