// Execution of a Reproduction. run_reproduction() trains a model for each row and seed, measures the models,
// and writes the files of the table.
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
  // 0 if no command failed. If commands failed, the exit status of these commands, or kFailureExitStatus if
  // their exit statuses differ.
  int failure_status = 0;
  int stop_signal = 0;  // signal that stopped run_reproduction(), or 0
};

// Trains the rows in options.row_names, or all rows of the table if options.row_names is empty, with each
// seed in options.seeds. Skips the training if Table::needs_training or Row::is_trained is false. After
// training, runs the measurements of the rows and writes the files of the table. Resumes unfinished training
// runs of an earlier call, and does not repeat finished training runs and measurements. After a failure in
// one row, continues with the other rows. Throws ConfigError if a row is unknown or a setting is invalid.
// Also throws the exceptions that the constructor of ResultStore throws.
//
// In a distributed run, the training runs and their measurements are divided among the processes. Only
// process 0 writes the files and returns TableResult::table. Each process returns the failures of all
// processes. If a signal stops the call, each process returns only its own failures, and the Communicator of
// the processes must not be used again.
TableResult run_reproduction(const Reproduction& reproduction, const ReproductionOptions& options);

// Runs a few training steps of each trained row in options.row_names, and returns the estimated time, memory
// and disk space. Writes only temporary files. If Table::needs_training is false, returns no estimates.
// Throws CommandError if a command fails, and StoppedError if the process receives a signal to stop.
Report estimate_reproduction_costs(const Reproduction& reproduction, const ReproductionOptions& options);

// Returns the rows in options.row_names, in the order of the table. If options.row_names is empty, returns
// all rows. Throws ConfigError if a row is unknown, or if a --set option sets a config key that no config of
// the returned rows uses.
std::vector<Row> select_rows(const Table& table, const ReproductionOptions& options);

}  // namespace tapeformer
