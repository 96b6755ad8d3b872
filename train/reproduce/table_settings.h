// --set options and rows of tables. A variable measure.NAME of a table can be changed with --set
// measure.NAME=VALUE, where 0 stands for the value of the file.
#pragma once

#include "train/reproduce/table.h"

namespace tapeformer {

// Returns the names of the variables that --set measure.NAME changes, with their help texts.
std::vector<std::pair<std::string, std::string>> list_measure_options(const TableFile& file);

// Copies the --set options to options.all_config_settings. Returns the variables that they set: measure.NAME,
// and config keys that are the names of variables. The settings measure.NAME are removed from the overrides.
// Throws ConfigError for a setting that the table does not take.
Json take_settings(const TableFile& file, ReproductionOptions& options);

// Returns a lookup of the variables and of the config keys of the row without its fixed settings.
Lookup add_config_keys(Lookup variables, const ReproductionOptions& options, const Row& row);

// Returns the rows in options.row_names, in the order of the table. If options.row_names is empty, returns
// all rows. Throws ConfigError if a row is unknown, if a --set option sets a config key that no config of the
// returned rows uses, or if a measurement of the rows has invalid options.
std::vector<Row> select_rows(const Table& table, const ReproductionOptions& options);

}  // namespace tapeformer
