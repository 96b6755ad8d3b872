// Command lines: declaration, parsing, common options, and printing of results.
//
// A command declares its arguments and options in a CommandSpec. parse_command() parses the words after the
// name of the command and, with --help, prints the help. The function also sets the log level and the number
// of threads of the process.
//
// parse_command() throws ConfigError if the words do not match the declaration of the command, with
// suggestions for unknown names. parse_command() and select_device() throw DeviceError if the device in
// --device is unavailable.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/options/options.h"
#include "train/command_options.h"
#include "train/report.h"

namespace tapeformer {

using Arguments = std::vector<std::string>;  // words after the name of the command

// The exit status of a training run that received a signal, saved a checkpoint and stopped.
inline constexpr int kSignalStopExitStatus = 75;

struct PositionalArgument {
  std::string name;  // for example "RUN"
  std::string help;
  bool is_required = true;
  bool is_repeated = false;  // whether the argument, which must be the last one, takes all remaining words
  std::vector<std::string> suggestions = {};  // values that a shell completes; others may be valid
};

struct CommandSpec {
  std::string name = {};  // for example "eval"
  std::string summary = {};
  std::vector<PositionalArgument> positionals = {};
  // The default value of an option determines its type. A boolean option is a flag. An option whose default
  // is a list of strings may be repeated.
  std::vector<OptionSpec> options = {};
  std::string details = {};  // help text below the options
  bool uses_config = false;  // whether the command accepts --set
  // The values of --device and --seed without these options, for the help text.
  std::string default_device = "auto", default_seed = "0";
  // Returns the text of "--help TOPIC". Throws ConfigError for an unknown topic. If the function is empty,
  // --help takes no topic.
  std::function<std::string(const std::string& topic)> make_topic_help = {};
};

struct CommonOptions {
  std::string device = "auto";
  bool is_device_given = false;  // whether --device occurs on the command line
  // Number of CPU threads. If `threads` is 0, a training run uses run.threads threads. If run.threads is also
  // 0, or if the command does not train, each process uses OMP_NUM_THREADS threads or its share of the
  // available processors (ProcessGroup::default_thread_count).
  int64_t threads = 0;
  std::optional<int64_t> seed;
  std::string data_dir;  // if empty, the default folders of data/sets/directory.h are used
  std::vector<std::string> config_settings;
  bool json = false, quiet = false;
};

struct CommandLine {
  std::vector<std::string> positionals;
  OptionValues options;  // values of CommandSpec::options
  CommonOptions common_options;
  // Names of the options in CommandSpec::options that occur on the command line.
  std::vector<std::string> given_option_names;
};

// Returns whether an option of CommandSpec::options occurs on the command line.
bool is_given(const CommandLine& line, const std::string& option);

// Parses a command line. If the words contain --help, prints the help and returns std::nullopt. Words after
// "--" are positional, even if they begin with a dash.
std::optional<CommandLine> parse_command(const CommandSpec& spec, const Arguments& arguments);

std::vector<OptionSpec> make_common_specs(const CommandSpec& command);
bool is_flag(const OptionSpec& spec);

// Texts on an option for a user. `value` names its value, and is empty for flags.
struct OptionHelp {
  std::string value, fallback, text;
};
OptionHelp describe_option(const OptionSpec& spec);
// Returns the arguments of a command, such as "RUN FILE [TARGET]".
std::string format_positionals(const CommandSpec& spec);
// Returns the usage of a command without its name, such as "CONFIG [options]".
std::string format_usage(const CommandSpec& spec);

ConfigOverrides make_config_overrides(const CommonOptions& options);

// Calls init_process_group() and log_processes(). If there are several processes and --threads is 0, also
// sets the number of threads to ProcessGroup::default_thread_count.
void init_process_group_and_threads(const CommonOptions& options);

// Returns the device that --device names. For --device auto, logs the chosen device; see
// select_and_log_device().
Device select_device(const CommonOptions& options);

// Prints the report on standard output, as JSON with --json and as text otherwise.
void print_report(const Report& report, const CommonOptions& options);

// On process 0, writes escape_text(raw) to standard output and flushes it. Does nothing on other processes.
// Throws std::runtime_error if standard output cannot be written.
void print_text(const std::string& raw);
// Writes a text that a model has generated to standard output and flushes it. Only on a terminal, its control
// characters are escaped. Throws as print_text().
void print_generated_text(std::string_view text);

}  // namespace tapeformer
