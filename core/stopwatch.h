// Elapsed time of work on a device.
#pragma once

#include <chrono>
#include <memory>

#include "core/device.h"

namespace tapeformer {

namespace cuda {
class EventTimer;
}

// Measures wall-clock time on the CPU. On a CUDA device, measures the time between two events in the stream.
// This time does not include work that was launched before the start of the measurement.
class Stopwatch {
 public:
  explicit Stopwatch(Device device);  // starts the measurement
  // Returns the seconds since the start. Waits for the work launched so far.
  double measure_elapsed_seconds() const;

 private:
  Device device_;
  std::chrono::steady_clock::time_point start_;    // start time on the CPU
  std::shared_ptr<const cuda::EventTimer> timer_;  // null on the CPU
};

}  // namespace tapeformer
