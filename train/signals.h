// Handlers of SIGINT and SIGTERM. A training run that receives one of these signals stops after the current
// step and writes a checkpoint. Other commands end immediately.
#pragma once

#include <exception>
#include <functional>

namespace tapeformer {

// Exit status of a process that a signal ended immediately.
inline constexpr int kInterruptedExitStatus = 130;

// Installs handlers of SIGINT and SIGTERM for processes with nothing to save. The handlers print an error
// message to standard error, end the programs that CommandOutput runs, and end the process with
// kInterruptedExitStatus.
void install_exit_handlers();

// Prevents the handlers of install_exit_handlers() from printing the error message. Processes call this
// function if their launcher reports signals.
void suppress_signal_message();

// Returns whether any StopSignalScope object of this process has recorded SIGTERM.
bool has_received_sigterm();

// A scope with signal handlers that record SIGINT and SIGTERM instead of ending the process. The second
// SIGINT ends the process at once. The destructor restores the previous handlers.
class StopSignalScope {
 public:
  StopSignalScope();
  ~StopSignalScope();
  StopSignalScope(const StopSignalScope&) = delete;
  StopSignalScope& operator=(const StopSignalScope&) = delete;

  // Returns the last recorded signal, SIGINT or SIGTERM, or 0 if there was none.
  int last_signal() const;
};

// A function that long computations call between batches. If the function returns true, the computation
// throws StoppedError. If the function is empty, the computation is never stopped.
using StopCheck = std::function<bool()>;

// The exception that a computation throws if its StopCheck returns true.
class StoppedError : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped by a signal"; }
};

inline void throw_if_stopped(const StopCheck& stop) {
  if (stop && stop()) throw StoppedError();
}

}  // namespace tapeformer
