// The tables and figures of the papers, by name: each trains or measures what it needs, writes its files
// (CSV, SVG) and reports ours, beside the paper's where the paper prints numbers. To add one: write its file,
// declare it here, list it in reproductions() and in CMakeLists.txt.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/commands/common.h"
#include "train/config.h"
#include "train/evaluate.h"

namespace tapeformer {

inline constexpr double kMebi = 1024.0 * 1024.0;

struct ReproductionOptions {
  bool paper = false;             // the paper's sizes; else ones that two cores manage
  std::filesystem::path configs;  // the folder of the repository's configs
  std::filesystem::path out;      // an existing folder; runs and files go there
  CommonOptions common;
};

struct Reproduction {
  std::string name, summary;
  Report (*run)(const ReproductionOptions& options);
};

const std::vector<Reproduction>& reproductions();
// Throws ConfigError with a suggestion for an unknown name.
const Reproduction& reproduction(const std::string& name);

Reproduction attention_scaling_reproduction();
Reproduction copy_convergence_reproduction();
Reproduction reformer_table2_reproduction();
Reproduction speech_scaling_reproduction();
Reproduction speech_table_reproduction();

// A training that belongs to a reproduction.
struct FinishedRun {
  std::string path;  // its run directory
  Config config;
  int64_t steps = 0;
  double seconds = 0;  // of training
};

// A signal ended a training, whose checkpoint was written, or the evaluation of a finished run.
struct StoppedBySignal {};

// Settings "table.key=value" around those of the command line: later ones win.
struct RunSettings {
  std::vector<std::string> defaults;  // the command line may change them
  std::vector<std::string> fixed;     // what the table or figure is about
};

// Trains a config of options.configs with these settings in options.out / `name`; continues what an earlier
// call began, and does nothing for a finished run. Throws StoppedBySignal.
FinishedRun train_run(const ReproductionOptions& options, const std::string& name, const std::string& config,
                      const RunSettings& settings);

// Returns the result of `compute`, which gets a check for signals. Throws StoppedBySignal if `compute` throws
// Stopped.
template <class F>
auto until_stopped(F&& compute) {
  const StopSignals signals;
  try {
    return compute([&signals] { return signals.requested() != 0; });
  } catch (const Stopped&) {
    throw StoppedBySignal{};
  }
}

// Throws ConfigError when the command line sets one of the keys, which the reproduction sets itself.
void refuse_settings(const ReproductionOptions& options, const std::vector<std::string>& keys);

// A finished run's test split under the settings of the command line and then others ("attention.rounds=8").
// Throws StoppedBySignal.
Evaluation evaluate_run(const ReproductionOptions& options, const FinishedRun& run,
                        const std::vector<std::string>& sets);

// One line a row; cells hold no commas, quotes or line ends.
void write_csv(const std::filesystem::path& path, const std::vector<std::vector<std::string>>& rows);

// Six digits; "" for what is not finite.
std::string csv_number(double value);

}  // namespace tapeformer
