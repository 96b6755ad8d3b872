// Tables and figures of papers for `tapeformer reproduce`. To add a table or a figure, write a function that
// returns a Reproduction in a file of tables/. Declare the function here, add it to reproductions(), and list
// the file in CMakeLists.txt.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"
#include "train/command_options.h"
#include "train/config/config.h"
#include "train/reproduce/table.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

enum class TableScale { smoke, small, paper };

// Returns the names of the scales in the order of TableScale.
const std::vector<std::string>& scale_names();

struct ReproductionOptions {
  TableScale scale = TableScale::smoke;
  std::filesystem::path configs;       // folder with the configs of the experiments
  std::filesystem::path out;           // folder for the files and the runs of the table
  std::filesystem::path runs = {};     // folder of the runs; empty: `runs` in `out`
  std::vector<int64_t> seeds = {1};    // one training per row and seed
  std::vector<std::string> rows = {};  // names of rows; empty: all rows
  int64_t jobs = 1;                    // trainings at the same time
  Device device = kCpu;                // device of all trainings, evaluations and measurements
  DataAccess data = {""};
  bool quiet = false;  // disables the printing of progress
  // Overrides of all configs. read_settings() removes the settings measure.NAME from `overrides.sets` and
  // sets `measure`.
  ConfigOverrides overrides = {};
  std::vector<std::string> given_sets = {};  // all --set options, for the files of the table
  OptionValues measure = {};                 // values of the options in Reproduction::measure

  // Returns the value of --device for commands: the name that the user has chosen, such as "cuda-emulated",
  // or the name of `device`.
  std::string device_name() const { return overrides.device.empty() ? device.to_string() : overrides.device; }
  // Returns the argument that belongs to `scale`.
  template <class T>
  T by_scale(T smoke, T small, T paper) const {
    return scale == TableScale::smoke ? smoke : scale == TableScale::small ? small : paper;
  }
  // Returns an option of Reproduction::measure, or the value for the scale if the option is 0.
  int64_t measured(const char* name, int64_t smoke, int64_t small, int64_t paper) const {
    const auto value = measure.get<int64_t>(name);
    return value > 0 ? value : by_scale(smoke, small, paper);
  }
};

struct Reproduction {
  std::string name, summary;
  // Returns the table for options.scale and the settings in `options`.
  Table (*table)(const ReproductionOptions& options);
  // Options that --set measure.NAME=VALUE changes.
  std::vector<OptionSpec> measure = {};
  // Config tables ("model") and keys ("run.precision") that --set may change, except `own_keys`, which the
  // reproduction sets itself.
  std::vector<std::string> config_keys = {};
  std::vector<std::string> own_keys = {};
};

// Returns an integer option of Reproduction::measure. The default value 0 selects a value that depends on the
// scale.
OptionSpec size_option(const char* name, std::string help);

// Returns the config tables that trainings read, for Reproduction::config_keys.
std::vector<std::string> training_keys();

// Returns all reproductions in the order in which the help lists them.
const std::vector<Reproduction>& reproductions();
// Returns the reproduction with this name. If there is none, throws a ConfigError that suggests a similar
// name.
const Reproduction& reproduction(const std::string& name);

Reproduction attention_patterns_reproduction();
Reproduction attention_scaling_reproduction();
Reproduction cifar10_samples_reproduction();
Reproduction cifar10_table_reproduction();
Reproduction copy_convergence_reproduction();
Reproduction mnist_samples_reproduction();
Reproduction mnist_table_reproduction();
Reproduction reformer_complexity_reproduction();
Reproduction reformer_speed_reproduction();
Reproduction reformer_table2_reproduction();
Reproduction speech_scaling_reproduction();
Reproduction speech_table_reproduction();
Reproduction survey_table_reproduction();

// Fills `measure` from the settings measure.NAME in `overrides.sets` and removes these settings from the
// list. Throws ConfigError for settings that the reproduction does not take.
void read_settings(const Reproduction& reproduction, ReproductionOptions& options);

// Throws ConfigError if a --set option has no effect in any of the rows.
void check_settings(const ReproductionOptions& options, const std::vector<Row>& rows);

// Returns the value that the last --set option for `key` sets, without the quotes of a TOML string, or "" if
// there is none.
std::string set_value(const ReproductionOptions& options, const std::string& key);

// Returns the config of a row. Later settings override earlier settings, in this order: Row::defaults, --set
// options, Row::fixed, `settings`. Ignores settings of keys that have no effect in this config.
Config config_of(const ReproductionOptions& options, const Row& row, int64_t seed,
                 const std::vector<std::string>& settings = {});

}  // namespace tapeformer
