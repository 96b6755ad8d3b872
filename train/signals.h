// SIGINT and SIGTERM: a training run stops after the step at hand with a checkpoint, other work ends at once.
#pragma once

#include <exception>
#include <functional>

namespace tapeformer {

inline constexpr int kInterrupted = 130;  // exit status of a process that a signal ended with nothing to save

// Installs handlers for processes with nothing to save. SIGINT and SIGTERM write a line to standard error,
// end the programs that CommandOutput runs, and end the process with kInterrupted.
void end_on_signals();

// Installs handlers that record SIGINT and SIGTERM, and restores the old handlers at the end of the scope. A
// second SIGINT ends the process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that asked to stop, or 0.
  int requested() const;
};

// Check that long computations call between batches. They throw Stopped if it returns true. An empty check
// never stops them.
using StopCheck = std::function<bool()>;

// Thrown by a computation that a StopCheck stopped.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped by a signal"; }
};

inline void throw_if_stopped(const StopCheck& stop) {
  if (stop && stop()) throw Stopped();
}

}  // namespace tapeformer
