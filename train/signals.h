// Handlers of SIGINT and SIGTERM. A training run that receives one of these signals stops after the current
// step and writes a checkpoint. Other commands end immediately.
#pragma once

#include <exception>
#include <functional>

namespace tapeformer {

inline constexpr int kInterrupted = 130;  // exit status of a process that a signal ended immediately

// Installs handlers for processes with nothing to save. SIGINT and SIGTERM write a line to standard error,
// end the programs that CommandOutput runs, and end the process with kInterrupted.
void end_on_signals();

// Makes the handlers of end_on_signals() omit the line. A process whose launcher reports signals calls the
// function.
void omit_signal_message();

// Returns whether a StopSignals scope has recorded SIGTERM.
bool received_sigterm();

// A scope in which signal handlers record SIGINT and SIGTERM. The second SIGINT in a
// scope ends the process at once. The destructor restores the previous handlers.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns the number of the last signal in this scope, or 0 if there was none.
  int requested() const;
};

// A function that long computations call between batches. If it returns true, the computation throws Stopped.
// An empty function stops no computation.
using StopCheck = std::function<bool()>;

// An exception of a computation that a StopCheck stopped.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped by a signal"; }
};

inline void throw_if_stopped(const StopCheck& stop) {
  if (stop && stop()) throw Stopped();
}

}  // namespace tapeformer
