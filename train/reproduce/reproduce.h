// The tables and figures of the papers, by name: each trains or measures what it needs, writes its files
// (CSV, SVG) and reports ours, beside the paper's where the paper prints numbers. To add one: write its file,
// declare it here, list it in reproductions() and in CMakeLists.txt.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/cli/common.h"
#include "train/config/config.h"
#include "train/evaluate.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

inline constexpr double kMebi = 1024.0 * 1024.0;

struct ReproductionOptions {
  bool paper = false;             // the paper's sizes; else ones that two cores manage
  std::filesystem::path configs;  // the folder of the repository's configs
  std::filesystem::path out;      // an existing folder; runs and files go there
  Device device = kCpu;           // of all trainings, evaluations and measurements
  CommonOptions common;
  bool allow_commands = false;         // see DataAccess
  OptionValues measure = {};           // values of Reproduction::measure
  std::vector<std::string> sets = {};  // --set options of config keys

  DataAccess data() const { return {common.data_dir, allow_commands}; }
  uint64_t seed(uint64_t fallback) const {
    return static_cast<uint64_t>(common.seed.value_or(static_cast<int64_t>(fallback)));
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
};

// Returns the config tables that trainings read, for Reproduction::config_keys.
std::vector<std::string> training_keys();

const std::vector<Reproduction>& reproductions();
// Throws ConfigError with a suggestion for an unknown name.
const Reproduction& reproduction(const std::string& name);

Reproduction attention_scaling_reproduction();
Reproduction copy_convergence_reproduction();
Reproduction reformer_table2_reproduction();
Reproduction speech_scaling_reproduction();
Reproduction speech_table_reproduction();

// Fills `measure` and `sets` from the --set options of the command line. Throws ConfigError for settings that
// the reproduction does not take.
void read_settings(const Reproduction& reproduction, ReproductionOptions& options);

// A training of a reproduction. Later settings ("table.key=value") override earlier ones. The order is
// `defaults`, the command line, `fixed`.
struct Training {
  std::string name;                   // of its folder in options.out
  std::filesystem::path config;       // path in options.configs
  std::vector<std::string> defaults;  // the command line may change them
  std::vector<std::string> fixed;     // the command line may not change them
};

// Throws ConfigError for a setting of the command line that has no effect in any of the trainings.
void check_settings(const ReproductionOptions& options, const std::vector<Training>& trainings);

// Returns the config of a training, with further settings applied last. Ignores settings of the command line
// for keys that have no effect in this config.
Config config_of(const ReproductionOptions& options, const Training& training,
                 const std::vector<std::string>& settings = {});

struct FinishedRun {
  Training training;
  std::string path;  // its run directory
  Config config;
  int64_t steps = 0;
  double seconds = 0;  // of training
};

// Thrown if a signal stopped a training, which wrote a checkpoint, or the evaluation of a finished run.
struct StoppedBySignal {};

// Trains in the folder options.out / training.name. Resumes the run of an earlier call, and does nothing if
// that run is finished. Throws StoppedBySignal.
FinishedRun train_run(const ReproductionOptions& options, const Training& training);

// Calls `compute` with a StopCheck for signals and returns its result. Throws StoppedBySignal if `compute`
// throws Stopped.
template <class F>
auto until_stopped(F&& compute) {
  const StopSignals signals;
  try {
    return compute([&signals] { return signals.requested() != 0; });
  } catch (const Stopped&) {
    throw StoppedBySignal{};
  }
}

// Evaluates a finished run on its test split, with further settings ("attention.rounds=8"). Throws
// StoppedBySignal.
Evaluation evaluate_run(const ReproductionOptions& options, const FinishedRun& run,
                        const std::vector<std::string>& settings);

// One line a row; cells hold no commas, quotes or line ends.
void write_csv(const std::filesystem::path& path, const std::vector<std::vector<std::string>>& rows);

// Six digits; "" for what is not finite.
std::string csv_number(double value);

}  // namespace tapeformer
