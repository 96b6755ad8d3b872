// Reproduction of a table of a paper. run_reproduction() trains a model for each row and seed, measures the
// models, and writes the files of the table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/report.h"
#include "train/reproduce/reproduce.h"

namespace tapeformer {

struct TableResult {
  nlohmann::ordered_json table;       // see table_json.h
  std::vector<std::string> failures;  // "ROW, seed N, STAGE: PROBLEM"
  // Exit status of the failed commands, or kFailureExitStatus if the statuses differ. 0 if no command failed.
  int failure_status = 0;
  int stop_signal = 0;  // signal that stopped run_reproduction(), or 0
};

// Trains a model for each row in options.row_names and each seed in options.seeds, unless the row needs no
// trained model. If options.row_names is empty, uses all rows of the table. Then runs the measurements of
// these rows and writes the files of the table. Resumes unfinished training runs of an earlier call, and does
// not repeat finished training runs and measurements. After a failure in one row, continues with the other
// rows. Throws ConfigError for an unknown row or invalid settings, and the exceptions of ResultStore.
//
// In a distributed run, the training runs and their measurements are divided among the processes, and the
// result contains the failures of all processes. If a signal stops the call, the result contains only the
// failures of this process, and the Communicator of the processes must not be used again.
TableResult run_reproduction(const Reproduction& reproduction, const ReproductionOptions& options);

// Returns the estimated time, memory and disk space for each row in options.row_names, without writing files.
Report estimate_reproduction_costs(const Reproduction& reproduction, const ReproductionOptions& options);

// Returns the rows in options.row_names, in the order of the table. If options.row_names is empty, returns
// all rows. Throws ConfigError for an unknown row, and for a --set option that has no effect in any of the
// rows.
std::vector<Row> select_rows(const Table& table, const ReproductionOptions& options);

}  // namespace tapeformer
