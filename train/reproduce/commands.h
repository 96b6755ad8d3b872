// The commands of a reproduction. To train and measure the rows of a table (train/reproduce/table.h), a
// reproduction runs commands of tapeformer, such as `train` and `eval`, in child processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/reproduce/jobs.h"
#include "train/reproduce/reproduce.h"
#include "train/signals.h"

namespace tapeformer {

// Returns the name of the run directory for a row and a seed: "ROW-seed-N".
std::string make_run_name(const Row& row, int64_t seed);

// Settings that all commands of a reproduction share.
struct CommandContext {
  std::filesystem::path output_folder, log_folder, runs_folder;
  int64_t threads = 1;
  std::string device;
};

// Returns the trial for a row and a seed. The trial contains the config and the path of the run directory.
Trial make_trial(const ReproductionOptions& options, const CommandContext& context, const Row& row,
                 int64_t seed);

// Writes the config of the trial to `context.log_folder` and returns the command that trains the trial. If
// `dry_run` is true, the command only estimates the time and the memory of the training run.
Job make_training_job(const ReproductionOptions& options, const CommandContext& context, const Trial& trial,
                      bool dry_run = false);

// Runs the commands of a measurement and returns its results. Throws CommandError if a command fails, and
// StoppedError if a signal arrives.
MeasurementResults run_measurement(const Measurement& measurement, const ReproductionOptions& options,
                                   const CommandContext& context, const Trial& trial,
                                   const StopSignalScope& signals);

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
