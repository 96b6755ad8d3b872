// Reproductions of tables and figures of papers. Each reproduction trains or measures models, writes files
// (CSV, SVG) and reports its results together with the published numbers, if there are any. To add a
// reproduction, write its file, declare it here, and list it in reproductions() and in CMakeLists.txt.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "train/command_options.h"
#include "train/config/config.h"
#include "train/distributed/processes.h"
#include "train/evaluate.h"
#include "train/loop/process_settings.h"
#include "train/report.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

inline constexpr double kMebi = 1024.0 * 1024.0;

struct ReproductionOptions {
  bool paper = false;             // whether to use the sizes of the paper; otherwise sizes for two cores
  std::filesystem::path configs;  // folder of the configs of the experiments
  std::filesystem::path out;      // existing folder for runs and files
  Device device = kCpu;           // device of all trainings, evaluations and measurements
  DataAccess data = {""};
  bool quiet = false;        // no progress
  Processes processes = {};  // processes that train and evaluate together
  // Overrides of all configs. read_settings() moves measure.* from `sets` to `measure`.
  ConfigOverrides overrides = {};
  OptionValues measure = {};  // values of Reproduction::measure

  uint64_t seed(uint64_t fallback) const {
    return static_cast<uint64_t>(overrides.seed.value_or(static_cast<int64_t>(fallback)));
  }
};

struct Reproduction {
  std::string name, summary;
  Report (*run)(const ReproductionOptions& options);
  // Options that --set measure.NAME changes.
  std::vector<OptionSpec> measure = {};
  // Config tables ("model") and keys ("run.precision") that --set may change, except `own_keys`, which the
  // reproduction sets itself.
  std::vector<std::string> config_keys = {};
  std::vector<std::string> own_keys = {};

  // Returns whether it trains models, so that several processes can share the work.
  bool trains() const {
    return std::find(config_keys.begin(), config_keys.end(), "train") != config_keys.end();
  }
};

// Returns the config tables that trainings read, for Reproduction::config_keys.
std::vector<std::string> training_keys();

// Returns all reproductions in the order in which the help lists them.
const std::vector<Reproduction>& reproductions();
// Returns the reproduction with this name. Throws ConfigError, with a suggestion, if there is none.
const Reproduction& reproduction(const std::string& name);

Reproduction attention_scaling_reproduction();
Reproduction copy_convergence_reproduction();
Reproduction reformer_table2_reproduction();
Reproduction speech_scaling_reproduction();
Reproduction speech_table_reproduction();

// Fills `measure` from the settings measure.NAME in `overrides.sets` and removes these settings from the
// list. Throws ConfigError for settings that the reproduction does not take.
void read_settings(const Reproduction& reproduction, ReproductionOptions& options);

// A training of a reproduction. Settings ("table.key=value") are applied in the order `defaults`, command
// line, `fixed`.
struct Training {
  std::string name;                   // name of its folder in options.out
  std::filesystem::path config;       // path in options.configs
  std::vector<std::string> defaults;  // settings that the command line may change
  std::vector<std::string> fixed;     // settings that the command line may not change
};

// Throws ConfigError for a setting of the command line that has no effect in any of the trainings.
void check_settings(const ReproductionOptions& options, const std::vector<Training>& trainings);

// Returns the config of a training run, with `settings` applied last. Ignores settings of the command line
// for keys that have no effect in this config.
Config config_of(const ReproductionOptions& options, const Training& training,
                 const std::vector<std::string>& settings = {});

struct FinishedRun {
  Training training;
  std::string path;  // run directory
  Config config;
  int64_t steps = 0;
  double seconds = 0;  // training time
};

// Thrown if a signal stopped a training run, which then saved a checkpoint, or the evaluation of a finished
// run.
struct StoppedBySignal {};

// Trains in the folder options.out / training.name. Resumes the run of an earlier call. Does not train if the
// run is finished. Throws StoppedBySignal.
FinishedRun train_run(const ReproductionOptions& options, const Training& training);

// Calls `compute` with a StopCheck for signals to any process and returns its result. Throws StoppedBySignal
// if `compute` throws Stopped.
template <class F>
auto until_stopped(const ReproductionOptions& options, F&& compute) {
  const StopSignals signals;
  try {
    return compute([&] { return any_process(*options.processes.communicator, signals.requested() != 0); });
  } catch (const Stopped&) {
    throw StoppedBySignal{};
  }
}

// Evaluates a finished run on its test split, with further settings such as "attention.rounds=8". Throws
// StoppedBySignal.
Evaluation evaluate_run(const ReproductionOptions& options, const FinishedRun& run,
                        const std::vector<std::string>& settings);

using CsvRow = std::vector<std::string>;

// Writes one line per row. Cells must not contain commas, quotes or line ends.
void write_csv(const std::filesystem::path& path, const std::vector<CsvRow>& rows);

// Formats a value with six significant digits. Returns "" for a value that is not finite.
std::string csv_number(double value);

}  // namespace tapeformer
