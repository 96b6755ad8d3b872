// Handlers of the stop signals: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. A training run that receives a
// stop signal stops after the current step and writes a checkpoint. Other commands end immediately. If
// SIGHUP, SIGUSR1 or SIGUSR2 is ignored at the start of the program, for example by nohup, the signal stays
// ignored.
#pragma once

#include <exception>
#include <functional>

namespace tapeformer {

// Exit status of a process that a signal ended immediately.
inline constexpr int kInterruptedExitStatus = 130;

// Environment variable with the id of the process that started this process. install_exit_handlers() reads
// it: if the parent ends for any reason, this process gets SIGTERM.
inline constexpr char kParentVariable[] = "TAPEFORMER_PARENT";

// Installs handlers of the stop signals for processes with nothing to save. The handlers print an error
// message to standard error, end the child processes, and end the process with kInterruptedExitStatus.
void install_exit_handlers();

// Prevents the handlers of install_exit_handlers() from printing the error message. Processes call this
// function if their launcher reports signals.
void suppress_signal_message();

// Returns whether any StopSignalScope object of this process has recorded this stop signal.
bool has_received_signal(int number);

// A scope with signal handlers that record the stop signals instead of ending the process. The second SIGINT
// calls the previous handler, such as that of install_exit_handlers() or of Python. If there is none, it ends
// the process. The destructor restores the previous handlers. Scopes must not be nested.
class StopSignalScope {
 public:
  StopSignalScope();
  ~StopSignalScope();
  StopSignalScope(const StopSignalScope&) = delete;
  StopSignalScope& operator=(const StopSignalScope&) = delete;

  // Returns the last recorded signal, or 0 if there was none.
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
