// Execution of a table. run_reproduction() trains a model for each row and seed, measures the models, and
// writes the files of the table.
#pragma once

#include "train/report.h"
#include "train/reproduce/table.h"

namespace tapeformer {

struct TableResult {
  Json table;                         // see table_json.h
  std::vector<std::string> failures;  // "ROW, seed N, STAGE: PROBLEM"
  // 0 if no command failed. If commands failed, the exit status of these commands, or kFailureExitStatus if
  // their exit statuses differ.
  int failure_status = 0;
  int stop_signal = 0;  // signal that stopped run_reproduction(), or 0
};

// Trains the trained rows of options.row_names, or of the table if options.row_names is empty, with each seed
// in options.seeds. After training, runs the measurements of the rows and writes the files of the table.
// Resumes unfinished training runs of an earlier call, and does not repeat finished training runs and
// measurements. After a failure in one row, continues with the other rows. Throws ConfigError as
// select_rows() does. Also throws the exceptions that the constructor of ResultStore throws.
//
// In a distributed run, the training runs and their measurements are divided among the processes. Only
// process 0 writes the files and returns TableResult::table. Each process returns the failures of all
// processes. If a signal stops the call, each process returns only its own failures, and the Communicator of
// the processes must not be used again.
TableResult run_reproduction(const Table& table, const ReproductionOptions& options);

// Runs a few training steps of each trained row in options.row_names, and returns the estimated time, memory
// and disk space. Writes only temporary files. If no row is trained, returns no estimates. Throws
// CommandError if a command fails, and StoppedError if the process receives a signal to stop.
Report estimate_reproduction_costs(const Table& table, const ReproductionOptions& options);

}  // namespace tapeformer
