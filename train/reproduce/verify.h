// Verification of a table: the rows of an earlier table.json are trained and measured again, and the values
// are compared.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/report.h"
#include "train/reproduce/table.h"

namespace tapeformer {

struct VerificationOptions {
  double max_minutes = 10;  // rows that took longer are not repeated
  double tolerance = 0.01;  // relative difference that is permitted if a cell states no spread, or 0
};

// The contents of a table.json that a verification uses.
struct StatedTable {
  std::string path;
  Json table;
  Words settings;
  std::string scale;
};

// Reads a table.json, or a file of docs/results, which has the same form. Throws ConfigError if the file
// belongs to another table, and DataError if it does not have the form of a table.
StatedTable read_stated_table(const std::filesystem::path& path, const std::string& table_name);

// Sets options.row_names to the rows that the stated table has measured in at most max_minutes, if
// options.row_names is empty, or removes the other rows from it. Sets options.seeds to the first stated seed
// if `options.seeds` is empty. Returns one line for each row that will not be repeated. Throws ConfigError if
// no row remains.
std::vector<std::string> select_verified_rows(const StatedTable& stated, const Table& table,
                                              const VerificationOptions& verification,
                                              ReproductionOptions& options);

struct Verification {
  Report report;          // one row for each compared cell, and the numbers of cells
  int64_t different = 0;  // cells that do not agree
};

// Compares `repeated`, the result of run_reproduction(), with the stated table. A number agrees if it is
// between the smallest and the largest stated value of its cell, or outside by at most the stated spread. If
// the cell states no spread, or 0, the relative difference must be at most the tolerance. A text must be
// equal. Speeds and times are shown and not compared.
Verification compare_tables(const StatedTable& stated, const Json& repeated, const Table& table,
                            const VerificationOptions& verification, const ReproductionOptions& options);

}  // namespace tapeformer
