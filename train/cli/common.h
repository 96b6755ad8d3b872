// What all commands share: declaring and reading a command line, the common options, and printing a result.
//
// A command declares its arguments and options once, as a CommandSpec; parse_command reads the words after
// the command's name by it, prints --help, and applies the common options to the process (log level,
// threads).
//
// Errors: ConfigError for everything that does not fit the declaration, with a "did you mean" for unknown
// names; DeviceError for a device that is not there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/options.h"
#include "train/cli/report.h"

namespace tapeformer {

using Arguments = std::vector<std::string>;  // what stands after the command's name

inline constexpr int kStoppedBySignal = 75;  // the exit status

struct Positional {
  std::string name;  // "RUN"
  std::string help;
  bool required = true;
  bool repeated = false;  // takes all that follow; the last one only
};

struct CommandSpec {
  std::string name;  // "eval"
  std::string summary;
  std::vector<Positional> positionals;
  // The type follows the default: a flag for false, text, a whole number, a number; a list of texts is an
  // option that may be repeated.
  std::vector<OptionSpec> options;
  std::string details = {};  // more help, below the options
  bool uses_config = false;  // takes --set
  // Returns the text of "--help TOPIC"; throws ConfigError for an unknown topic. If it is empty, --help takes
  // no topic.
  std::function<std::string(const std::string& topic)> help_on = {};
};

struct CommonOptions {
  std::string device = "auto";
  int64_t threads = 0;  // 0: all processors
  std::optional<int64_t> seed;
  std::string data_dir;  // empty: see data/directory.h
  std::vector<std::string> sets;
  bool json = false, quiet = false;
};

struct CommandLine {
  std::vector<std::string> positionals;
  OptionValues options;  // complete
  CommonOptions common;
  std::vector<std::string> given;  // the names of the command's own options that are on the line
};

// Parses a command line. Prints the help and returns nothing if the words contain --help. Words after "--"
// are positional, even if they begin with a dash.
std::optional<CommandLine> parse_command(const CommandSpec& spec, const Arguments& arguments);

// Returns the value of --device, which overrides run.device of a config; "" for "auto".
std::string named_device(const CommonOptions& common);

// Returns announced_device() for the option --device.
Device use_device(const CommonOptions& common);

// Prints the report on standard output in the form that the options ask for.
void print_report(const Report& report, const CommonOptions& common);

// Writes printable(raw) to standard output and flushes it. Throws std::runtime_error if this fails.
void print_text(const std::string& raw);

// "0,3,7" as numbers of at least 0; ConfigError naming the option for other text.
std::vector<int64_t> index_list(const std::string& option, const std::string& text);

// `unknown command "evil"; did you mean "eval"?`, or all the names when none is near.
std::string unknown_text(const std::string& kind, const std::string& word,
                         const std::vector<std::string>& names);

}  // namespace tapeformer
