#include "train/cli/run.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <new>
#include <system_error>
#include <typeinfo>
#include <utility>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/system/machine.h"
#include "train/cli/commands.h"
#include "train/cli/data_advice.h"
#include "train/cli/log.h"
#include "train/config/option_names.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"
#include "train/loop/process_settings.h"
#include "train/signals.h"

namespace tapeformer::cli {
namespace {

constexpr int kFailureExitStatus = 1, kUsage = 2, kBadData = 3, kNoDevice = 4, kDiverged = 5;

bool asks_for_help(const Arguments& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  return std::find(words.begin(), end, "--help") != end || std::find(words.begin(), end, "-h") != end;
}

// Returns whether the command can run in a process that fails to join the other processes of the run.
// Examples of such commands are "info" and --help.
bool runs_without_joining(const Arguments& words) {
  return !words.empty() && (words.front() == "--version" || words.front() == "help" ||
                            words.front() == "info" || words.front() == "completion" || asks_for_help(words));
}

int run_command(const std::string& name, Arguments arguments) {
  if (name == "help" && !arguments.empty() && arguments.front() == "--man") {
    print_text(format_man_page({arguments.begin() + 1, arguments.end()}));
    return 0;
  }
  if (name == "help" && !arguments.empty()) {
    const std::string command = std::exchange(arguments.front(), "--help");
    return run_command(command, arguments);
  }
  if (name == "--help" || name == "-h" || name == "help") {
    print_text(format_help_text());
    return 0;
  }
  if (name == "--version") {
    print_text("tapeformer " + get_build_info().version + "\n");
    return 0;
  }
  if (name == "completion" && arguments.size() > 1 && arguments.front() == "words") {
    print_completions({arguments.begin() + 1, arguments.end()});
    return 0;
  }
  const Command& command = find_command(name);
  if (!command.allow_multiple_processes && !asks_for_help(arguments))
    require_single_process("command \"" + name + "\"");
  const auto line = parse_command(make_command_spec(command, arguments), arguments);
  return line ? command.run(*line) : 0;
}

void print_error(const std::string& error) {
  log_message(LogLevel::error, error);
}

// Leaves the process group, prints the error `text` and returns the exit status `code`. Processes other than
// process 0 do not print an error that process 0 also has.
int report(const char* text, int code) {
  return destroy_process_group(code, text, print_error);
}

// Returns the message for an exception that has no dedicated exit status. If the type of the exception shows
// an internal error, the message names this type. Otherwise, the message describes the error.
std::string format_error(const std::exception& error) {
  if (dynamic_cast<const OutOfMemoryError*>(&error))
    return std::string(error.what()) +
           "; lower data.batch_size, the length of sequences or the size of the model, or set "
           "model.recompute = "
           "true or model.reversible = true";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return "cannot use " + file->path1().string() + ": " + file->code().message();
  if (const auto* system = dynamic_cast<const std::system_error*>(&error))
    return "the system refuses a resource: " + system->code().message();
  const bool ours = dynamic_cast<const std::runtime_error*>(&error) || typeid(error) == typeid(ShapeError) ||
                    typeid(error) == typeid(std::invalid_argument);
  if (ours) return error.what();
  return std::string("internal error (") + typeid(error).name() +
         "); please report it with the command and its config";
}

// Throws ConfigError if the processes of a run differ in the version of the program, the command or its
// arguments. The arguments of "train" may differ: the trainer compares the settings that must be equal.
void require_same_command(const Arguments& words) {
  if (!get_process_group_error().empty()) return;
  Communicator& processes = *init_process_group().communicator;
  if (processes.size() == 1) return;
  SharedSettings settings = list_version_settings();
  settings.emplace_back("command", words.front());
  std::string arguments;
  for (size_t i = 1; i < words.size(); ++i) arguments += (i == 1 ? "" : " ") + words[i];
  if (words.front() != "train") settings.emplace_back("arguments", arguments);
  require_same_settings(processes, settings);
}

// Joins the other processes of the run. In a run with several processes, the signal handlers print nothing,
// because mpirun and srun report signals.
void join(const Arguments& words) {
  try {
    if (init_process_group().communicator->size() > 1) suppress_signal_message();
  } catch (const ConfigError&) {
    if (!runs_without_joining(words)) throw;
  }
}

int run_and_report_errors(const Arguments& words) {
  try {
    // The process joins the other processes before it prints anything. As a result, only one process prints
    // the help or an error that all processes have.
    join(words);
    if (words.empty()) throw ConfigError("which command?\n" + format_help_text());
    require_same_command(words);
    return destroy_process_group(run_command(words.front(), Arguments(words.begin() + 1, words.end())), "",
                                 print_error);
  } catch (const FirstProcessError&) {
    return destroy_process_group(0, "", print_error);  // process 0 prints the error
  } catch (const ProcessLostError& error) {
    // If the launcher has sent SIGTERM, the launcher also reports the lost process. If the launcher has sent
    // SIGTERM, this process prints no error.
    return destroy_process_group(kFailureExitStatus, error.what(),
                                 has_received_signal(SIGTERM) ? nullptr : print_error);
  } catch (const ConfigError& error) {
    return report(error.what(), kUsage);
  } catch (const MissingDatasetError& error) {
    return report(format_missing_dataset_error(error).c_str(), kBadData);
  } catch (const DataError& error) {
    return report(error.what(), kBadData);
  } catch (const CheckpointWriteError& error) {
    return report(error.what(), kFailureExitStatus);
  } catch (const CheckpointError& error) {
    return report(error.what(), kBadData);
  } catch (const DeviceError& error) {
    return report(error.what(), kNoDevice);
  } catch (const DivergenceError& error) {
    return report(error.what(), kDiverged);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kFailureExitStatus);
  } catch (const std::exception& error) {
    return report(format_error(error).c_str(), kFailureExitStatus);
  }
}

}  // namespace

int run(int argc, char** argv) {
  use_keys_in_messages();
  install_terminal_log();
  // Commands that train replace these handlers while they train, so that a signal first saves a checkpoint.
  install_exit_handlers();
  return run_and_report_errors(Arguments(argv + 1, argv + argc));
}

}  // namespace tapeformer::cli
