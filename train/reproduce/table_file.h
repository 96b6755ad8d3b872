// Tables as TOML files. docs/tables.md describes their keys.
#pragma once

#include "train/reproduce/table.h"

namespace tapeformer {

// Returns the table with this name in the folder `tables` of the configs, or the table at this path if `name`
// ends with ".toml". Throws ConfigError for an unknown name or an invalid file.
TableFile read_table_file(const std::string& name, const std::filesystem::path& config_folder);
// Returns the names of the tables in the folder `tables` of the configs, in alphabetical order.
Words list_table_names(const std::filesystem::path& config_folder);

// Returns the table at options.scale. Moves the settings measure.NAME from options.overrides to the variables
// of the table. Throws ConfigError if the file or a setting is invalid.
Table make_table(const TableFile& file, ReproductionOptions& options);

}  // namespace tapeformer
