// Layers of a config: the config file, the files that it extends, and the --set options. Internal to the
// config code.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/config/parse.h"
#include "train/config/schema.h"

namespace tapeformer {

struct ConfigFiles {
  std::vector<std::string> paths;   // paths of the files, in the order of reading
  std::vector<ConfigLayer> layers;  // layers of the files, base files first
};

// Reads a config file and the files that this file extends. If `path` is empty, the result contains no files.
// Appends problems to `problems`, for example if files extend each other in a cycle.
ConfigFiles read_config_files(const std::string& path, std::vector<ConfigProblem>& problems);

// An object that applies config layers to a Config. A ConfigLayerApplier skips the [attention] tables of the
// layers.
class ConfigLayerApplier {
 public:
  // The arguments must outlive the applier. The applier appends problems of the settings to `problems`.
  ConfigLayerApplier(const std::vector<SchemaKey>& schema, const ConfigLoadOptions& options,
                     std::vector<ConfigProblem>& problems)
      : schema_(schema), options_(options), problems_(problems) {}

  // Overrides values in `config` with the settings of a layer, and resets keys that they exclude; see
  // SchemaKey::excluded_key.
  void apply(const ConfigLayer& layer, Config& config);

  // Returns the position of the last setting of a key, or null if no layer sets the key.
  const ConfigPosition* find_position(const std::string& name) const;

 private:
  void apply_setting(const Setting& setting, Config& config);

  const std::vector<SchemaKey>& schema_;
  const ConfigLoadOptions& options_;
  std::vector<ConfigProblem>& problems_;
  std::map<std::string, ConfigPosition> positions_;
};

// Returns a table with the default option values of each kind in `kinds`.
AttentionTables make_default_attention_tables(const std::vector<std::string>& kinds);

// Sets config.attention to the default options of the attention kinds in config.model.attention, and
// overrides these options with the [attention] tables of all config layers. The tables of a config layer
// belong to the kinds in the first layer of this sequence that sets model.attention:
// - the config layer itself
// - earlier layers, beginning with the nearest
// - later layers, beginning with the nearest
// If no layer sets model.attention, the tables belong to the default kind. Options of kinds that
// config.model.attention does not contain are checked, but have no effect.
void apply_attention_tables(const std::vector<ConfigLayer>& layers, const ConfigLoadOptions& options,
                            const std::vector<SchemaKey>& schema, Config& config,
                            std::vector<ConfigProblem>& problems);

}  // namespace tapeformer
