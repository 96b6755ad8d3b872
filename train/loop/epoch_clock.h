// Measurement of the training time of epochs.
#pragma once

#include <chrono>

#include "train/checkpoint/state.h"

namespace tapeformer {

// Wall-clock time and processor time since construction. The processor time is summed over all threads and,
// unlike wall-clock time, does not depend on other load on the machine.
class StepTimer {
 public:
  StepTimer();
  double seconds() const;
  double cpu_seconds() const;

 private:
  std::chrono::steady_clock::time_point start_;
  double cpu_start_;
};

// The sum of the times of the steps in the current epoch.
class EpochTimeAccumulator {
 public:
  void add(double seconds, double cpu_seconds) {
    times_.seconds += seconds;
    times_.cpu_seconds += cpu_seconds;
  }
  // Returns the times of the current epoch, and starts the next epoch with times of 0.
  TrainingState::EpochTimes finish_epoch();

  // Returns the time of the last complete epoch in seconds, or 0 if no epoch is complete.
  double last_epoch_seconds() const { return times_.last_epoch_seconds; }
  const TrainingState::EpochTimes& state() const { return times_; }
  void restore(const TrainingState::EpochTimes& state) { times_ = state; }

 private:
  TrainingState::EpochTimes times_;
};

}  // namespace tapeformer
