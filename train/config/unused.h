// Keys without effect in a config: reports settings of such keys and resets them to their defaults.
// Internal to the config code.
#pragma once

#include <vector>

#include "train/config/config.h"
#include "train/config/parse.h"
#include "train/config/schema.h"

namespace tapeformer {

// Layers that the user writes, and the resulting configs.
struct UserLayers {
  const ConfigLayer& file;  // config file, without the files that it extends
  const ConfigLayer& sets;
  const Config& file_config;  // config of all files without --set
  const Config& config;       // config of all files with --set
};

// Appends a problem for every setting without effect. Logs a warning for every setting of the file that has
// no effect because of a --set option.
void check_unused(const UserLayers& layers, const ConfigReading& reading, const AttentionCatalogue& catalogue,
                  const std::vector<SchemaKey>& schema, std::vector<ConfigProblem>& problems);

// Resets all keys without effect to their defaults.
void reset_unused(Config& config, const AttentionCatalogue& catalogue, const std::vector<SchemaKey>& schema);

}  // namespace tapeformer
