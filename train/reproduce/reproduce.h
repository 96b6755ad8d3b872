// Tables and figures of papers for `tapeformer reproduce`. To add a table or a figure, create a file in
// tables/ with a function that returns a Reproduction. Declare the function here, call it in
// list_reproductions(), and list the file in CMakeLists.txt.
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
const std::vector<std::string>& list_table_scale_names();

struct ReproductionOptions {
  TableScale scale = TableScale::smoke;
  std::filesystem::path config_folder;      // folder with the configs of the experiments
  std::filesystem::path output_folder;      // folder for the files and the runs of the table
  std::filesystem::path runs_folder = {};   // folder of the runs; empty: `runs` in `output_folder`
  std::vector<int64_t> seeds = {1};         // one training run per row and seed
  std::vector<std::string> row_names = {};  // empty: all rows
  int64_t max_parallel_jobs = 1;            // maximum number of training runs at the same time
  Device device = kCpu;                     // device of all training runs, evaluations and measurements
  DataAccessOptions data_access = {""};
  bool quiet = false;  // disables the printing of progress
  // Values from the command line that override the config files of the rows. extract_measurement_options()
  // removes the settings measure.NAME from `overrides`.
  ConfigOverrides overrides = {};
  // All --set options of the command line, which are written to table.json.
  std::vector<std::string> all_config_settings = {};
  OptionValues measurement_options = {};  // values of the options in Reproduction::measurement_options

  // Returns the value of the option --device for child processes. Returns the name that the user specified,
  // such as "cuda-emulated", if this name is not "auto". Otherwise, returns the name of `device`.
  std::string device_name() const { return overrides.device.empty() ? device.to_string() : overrides.device; }
  template <class T>
  T select_by_scale(T smoke, T small, T paper) const {
    return scale == TableScale::smoke ? smoke : scale == TableScale::small ? small : paper;
  }
  // Returns the value of the option `name` of Reproduction::measurement_options. If this value is 0, returns
  // the argument that belongs to `scale` instead.
  int64_t select_size(const char* name, int64_t smoke, int64_t small, int64_t paper) const {
    const auto value = measurement_options.get<int64_t>(name);
    return value > 0 ? value : select_by_scale(smoke, small, paper);
  }
};

struct Reproduction {
  std::string name, summary;
  // Returns the table for options.scale and the settings in `options`.
  Table (*make_table)(const ReproductionOptions& options);
  // Options that the user can change with --set measure.NAME=VALUE.
  std::vector<OptionSpec> measurement_options = {};
  // Config tables, such as "model", and config keys, such as "run.precision", that the user can change with
  // --set. If `config_keys` contains the table "train", the user can also change config keys in other tables.
  std::vector<std::string> config_keys = {};
  // Config keys that the user cannot change with --set, because the reproduction sets these keys.
  std::vector<std::string> reserved_keys = {};
};

// Returns an integer option, with the default value 0, for Reproduction::measurement_options. If the value of
// the option is 0, the size depends on the scale of the table (ReproductionOptions::select_size()).
// `max` is the maximum value of the option.
OptionSpec make_size_option(const char* name, std::string help, double max = 1 << 24);

// Returns the names of the config tables that affect a training run. Reproductions that train models use the
// returned list as Reproduction::config_keys.
std::vector<std::string> list_training_config_tables();

// Returns all reproductions in the order in which the help lists them.
const std::vector<Reproduction>& list_reproductions();
// Returns the reproduction with this name. If there is none, throws a ConfigError that suggests a similar
// name.
const Reproduction& find_reproduction(const std::string& name);

Reproduction make_attention_patterns_reproduction();
Reproduction make_attention_scaling_reproduction();
Reproduction make_cifar10_samples_reproduction();
Reproduction make_cifar10_table_reproduction();
Reproduction make_copy_convergence_reproduction();
Reproduction make_image_speeds_reproduction();
Reproduction make_mnist_samples_reproduction();
Reproduction make_mnist_table_reproduction();
Reproduction make_recall_table_reproduction();
Reproduction make_translation_table_reproduction();
Reproduction make_reformer_complexity_reproduction();
Reproduction make_reformer_speed_reproduction();
Reproduction make_reformer_table2_reproduction();
Reproduction make_speech_scaling_reproduction();
Reproduction make_speech_table_reproduction();
Reproduction make_survey_table_reproduction();

// Moves the settings measure.NAME from options.overrides.config_settings to options.measurement_options, and
// copies all --set options to options.all_config_settings. Throws ConfigError if a setting is invalid or is
// not supported by the reproduction.
void extract_measurement_options(const Reproduction& reproduction, ReproductionOptions& options);

// Throws ConfigError for the first --set option whose config key is not used by any config of `rows`.
void check_settings(const ReproductionOptions& options, const std::vector<Row>& rows);

// Returns the value of a config key in the --set options, without the quotes of a TOML string. If several
// options set the key, returns the last value. If no option sets the key, returns "".
std::string find_config_setting_value(const ReproductionOptions& options, const std::string& key);

// Returns the config of a row. Later settings override earlier settings, in this order:
// Row::default_settings, --set options, Row::fixed_settings, `settings`. Ignores settings of keys that have
// no effect in this config.
Config make_row_config(const ReproductionOptions& options, const Row& row, int64_t seed,
                       const std::vector<std::string>& settings = {});

}  // namespace tapeformer
