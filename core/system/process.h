// Child processes. A child process has a process group of its own and an empty standard input.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

struct ProcessOptions {
  std::string program;                              // a path, or a name that is searched in PATH
  std::vector<std::string> arguments;               // the first element is the name of the program
  std::vector<std::string> environment = {};        // "NAME=value"; empty: the environment of this process
  int output_descriptor = 1, error_descriptor = 2;  // standard output and standard error
  int end_signal = SIGKILL;
};

// A running program. Not thread-safe.
class ChildProcess {
 public:
  // Throws FileError if the program cannot be run.
  explicit ChildProcess(const ProcessOptions& options);
  // Calls end() and waits for the program, unless poll() has returned a status.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Sends end_signal to the process group.
  void end() const;
  // Returns the exit status in the format of waitpid(), or std::nullopt while the program runs. Throws
  // FileError if the status is unknown.
  std::optional<int> poll();

 private:
  std::string program_;
  int end_signal_;
  pid_t id_ = -1;
  std::optional<int> status_;
};

// Calls end() for the child processes of this process. Async-signal-safe. Call this function before the
// process exits.
void end_child_processes() noexcept;

}  // namespace tapeformer
