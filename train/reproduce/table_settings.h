// --set options of tables. Internal to train/reproduce.
#pragma once

#include "train/reproduce/table_file.h"

namespace tapeformer {

// Copies the --set options to options.all_config_settings. Returns the variables that they set: measure.NAME,
// and config keys that are the names of variables. The settings measure.NAME are removed from the overrides.
// Throws ConfigError for a setting that the table does not take.
Json take_settings(const TableFile& file, ReproductionOptions& options);

// Returns a lookup of the variables and of the config keys of the row without its fixed settings.
Lookup add_config_keys(Lookup variables, const ReproductionOptions& options, const Row& row);

}  // namespace tapeformer
