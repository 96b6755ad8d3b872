// Tables as TOML files. docs/tables.md describes their keys.
#pragma once

#include "core/options/option_table.h"
#include "train/reproduce/measurement_kind.h"

namespace tapeformer {

// A variable of a table that --set measure.NAME=VALUE changes. 0 stands for the value of the file.
struct MeasureOption {
  std::string name, help;
};

// The contents of a file, with those of the files that it extends, at all scales.
struct TableFile {
  std::string name;  // stem of the file
  std::filesystem::path path;
  Json contents;

  std::string summary() const { return contents.value("summary", ""); }
  std::vector<MeasureOption> measure_options() const;
};

// Returns the table with this name in the folder `tables` of the configs, or the table at this path if `name`
// ends with ".toml". Throws ConfigError for an unknown name or an invalid file.
TableFile read_table_file(const std::string& name, const std::filesystem::path& config_folder);
// Returns the names of the tables in the folder `tables` of the configs, in alphabetical order.
Words list_table_names(const std::filesystem::path& config_folder);

// Returns the table at options.scale. Moves the settings measure.NAME from options.overrides to the variables
// of the table. Throws ConfigError if the file or a setting is invalid.
Table make_table(const TableFile& file, ReproductionOptions& options);

// Returns the rows in options.row_names, in the order of the table. If options.row_names is empty, returns
// all rows. Throws ConfigError if a row is unknown, if a --set option sets a config key that no config of the
// returned rows uses, or if a measurement of the rows has invalid options.
std::vector<Row> select_rows(const Table& table, const ReproductionOptions& options);

bool applies_to_row(const Measurement& measurement, const Row& row);

}  // namespace tapeformer
