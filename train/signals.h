// SIGINT and SIGTERM ask a training run to stop after the step at hand; a second SIGINT ends the process at
// once.
#pragma once

namespace tapeformer {

// Installs the handlers for a scope and restores the old ones.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that asked to stop, or 0.
  int requested() const;
};

}  // namespace tapeformer
