// The commands of a reproduction. To train and measure the rows of a table (train/reproduce/table.h), a
// reproduction runs commands of tapeformer, such as `train` and `eval`, in child processes.
#pragma once

#include "train/config/config.h"
#include "train/reproduce/jobs.h"
#include "train/reproduce/table.h"
#include "train/signals.h"

namespace tapeformer {

// Returns the name of the run directory for the name of a row and a seed: "ROW-seed-N".
std::string make_run_name(const std::string& row, int64_t seed);

// Returns the row of the pretraining of `row`, which is not in the table.
Row make_pretraining_row(Row row);

// A row of a table, and the config that results from the row and one seed.
struct Trial {
  const Row& row;
  Config config = {};        // config of the row, with the settings of the command line and the seed
  std::string run_dir = {};  // run directory of the training run
  Json training = {};        // see ResultStore; null if the row is not trained

  std::string name() const { return make_run_name(row.name, config.run.seed); }
};

// Settings that all commands of a reproduction share.
struct CommandContext {
  const ReproductionOptions& options;
  std::filesystem::path output_folder = {}, log_folder = {}, runs_folder = {};
  int64_t threads = 1;
  std::string device = {};
  const StopSignalScope& signals;

  // Returns the config of a row. Later settings override earlier settings, in this order: Row::settings,
  // --set options, Row::fixed. Ignores settings of keys that have no effect in this config.
  Trial make_trial(const Row& row, int64_t seed) const;
  // Writes the config of the trial to `log_folder` and returns the command that trains the trial. If
  // `dry_run` is true, the command only estimates the time and the memory of the training run.
  Job make_training_job(const Trial& trial, bool dry_run = false) const;
  // Returns the variables of the row, and run, config and file: the run directory of the trial, its config
  // file, and a path in the output folder without an extension.
  Lookup make_variables(const Trial& trial) const;
  // Runs a command and returns the JSON object that it prints. Its log is named after the trial and `name`.
  // Throws CommandError if the command fails, and StoppedError if a signal arrives.
  Json run(const Trial& trial, const std::string& name, Words command) const;

 private:
  std::string write_config(const Trial& trial) const;
  void add_common_options(Words& words) const;
};

// Returns the config of a row, with placeholders in `fixed` replaced.
Config make_row_config(const ReproductionOptions& options, const std::string& config_path, Words settings,
                       const Words& fixed);

inline constexpr int kFailureExitStatus = 1;  // exit status of a failure at run time

class CommandError : public std::runtime_error {
 public:
  CommandError(const std::string& message, int exit_status)
      : std::runtime_error(message), exit_status_(exit_status) {}
  int exit_status() const { return exit_status_; }

 private:
  int exit_status_;
};

// Returns the JSON object that a finished job printed. Throws CommandError if the output is not a JSON
// object.
Json read_job_output(const Job& job);

}  // namespace tapeformer
