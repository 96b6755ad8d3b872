// The treatment of config keys that have no effect. Internal to the config code.
#pragma once

#include <vector>

#include "train/config/config.h"
#include "train/config/parse.h"
#include "train/config/schema.h"

namespace tapeformer {

// The settings of the config file and of the --set options, and the configs that result from these settings.
struct UserSettings {
  const ConfigLayer& file_layer;        // settings of the config file, without the files that it extends
  const ConfigLayer& set_option_layer;  // settings of the --set options
  const Config& file_config;            // config of all files without --set
  const Config& config;                 // config of all files with --set
};

// Appends a problem for every setting without effect that `options.unused_key_policy` does not allow. If a
// --set option removes the effect of a setting in the file, logs a warning instead.
void check_unused_keys(const UserSettings& layers, const ConfigLoadOptions& options,
                       const std::vector<SchemaKey>& schema, std::vector<ConfigProblem>& problems);

// Sets every key that has no effect in `config` to its default value.
void reset_unused_keys(Config& config, const std::vector<SchemaKey>& schema);

}  // namespace tapeformer
