#include <algorithm>
#include <filesystem>

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "train/config/check.h"
#include "train/config/config.h"
#include "train/config/layers.h"
#include "train/config/parse.h"
#include "train/config/problems.h"
#include "train/config/schema.h"
#include "train/config/unused.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

void make_absolute(std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (!error) path = absolute.lexically_normal().string();
}

void name_after_file(const std::string& path, Config& config, std::vector<ConfigProblem>& problems) {
  config.run.name = fs::path(path).stem().string();
  if (find_invalid_utf8(config.run.name) == std::string::npos) return;
  const ConfigPosition position{path};
  problems.push_back({position, "run.name: the name of the config file is not valid UTF-8; set run.name"});
}

// Returns the position that error messages contain for a key that no layer sets. Returns the position of the
// table of the key in the file `path`, or the start of the file if the file does not contain the table. If
// `path` is empty and no file is read, the position is "--set KEY".
ConfigPosition find_table_position(const std::string& key, const std::string& path,
                                   const std::vector<ConfigLayer>& layers) {
  const std::string table = key.substr(0, key.find('.'));
  for (const auto& layer : layers)
    for (const auto& candidate : layer.tables)
      if (candidate.name == table && candidate.position.file == path) return candidate.position;
  return path.empty() ? ConfigPosition{"--set " + key} : ConfigPosition{path, 1, 1};
}

// Appends the keys of the --set options to the message of each problem in a config file, because a --set
// option can cause such a problem. Lists at most kMaxNames keys, and omits the keys of the table [run].
void mention_set_options(const ConfigLayer& set_options, std::vector<ConfigProblem>& problems) {
  constexpr size_t kMaxNames = 4;
  std::vector<std::string> names;
  for (const Setting& setting : set_options.settings)
    if (setting.table_name != "run") names.push_back(setting.name());
  if (names.empty()) return;
  std::string text = " (with --set " + names.front();
  for (size_t i = 1; i < std::min(names.size(), kMaxNames); ++i) text += ", " + names[i];
  text += names.size() > kMaxNames ? ", …)" : ")";
  for (ConfigProblem& problem : problems)
    if (!is_set_option_position(problem.position)) problem.message += text;
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& sets,
                   const ConfigLoadOptions& options) {
  std::vector<ConfigProblem> problems;
  const ConfigFiles files = read_config_files(path, problems);
  std::vector<ConfigLayer> layers = files.layers;
  layers.push_back(parse_set_options(sets, problems));

  const std::vector<SchemaKey> schema = make_config_schema();
  ConfigLayerApplier applier(schema, options, problems);
  Config config;
  for (const auto& layer : files.layers) applier.apply(layer, config);
  const Config file_config = config;
  // A checkpoint may come from another user, so its config must not determine where a command writes files.
  if (options.purpose != ConfigPurpose::training) {
    config.data.options.erase("feature_cache");
    config.data.options.erase("image_cache");
  }
  applier.apply(layers.back(), config);
  apply_attention_tables(layers, options, schema, config, problems);
  if (!options.device.empty()) config.run.device = options.device;
  if (config.run.name.empty()) name_after_file(path, config, problems);
  if (problems.empty()) {
    const ConfigLayer file = files.layers.empty() ? ConfigLayer{} : files.layers.back();
    check_unused_keys({file, layers.back(), file_config, config}, options, schema, problems);
    reset_unused_keys(config, schema);
    const auto position = [&](const std::string& key) {
      const ConfigPosition* set = applier.find_position(key);
      return set ? *set : find_table_position(key, path, layers);
    };
    const auto is_used = [&](const std::string& name) {
      return std::none_of(schema.begin(), schema.end(), [&](const SchemaKey& key) {
        return key.name() == name && !key.explain_unused_by(options.purpose).empty();
      });
    };
    std::vector<ConfigProblem> contradictions;
    check_config(config, options.check_model, position, is_used, contradictions);
    mention_set_options(layers.back(), contradictions);
    problems.insert(problems.end(), contradictions.begin(), contradictions.end());
  }
  if (!problems.empty()) throw ConfigError(format_problems(problems, files.paths));
  for (const SchemaKey& key : schema) {
    if (!key.spec.is_path) continue;
    auto text = std::get<std::string>(key.get(config));
    if (text.empty()) continue;
    make_absolute(text);
    key.set(config, text);
  }
  return config;
}

}  // namespace tapeformer
