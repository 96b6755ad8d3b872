// How long work takes on the machine that does it.
#pragma once

#include <chrono>
#include <memory>

#include "core/device.h"

namespace tapeformer {

namespace cuda {
class EventTimer;
}

// On a device: between two events in its stream, so that launching what comes before does not count.
class Stopwatch {
 public:
  explicit Stopwatch(Device device);  // starts
  // Seconds since the start; waits for the work launched so far.
  double seconds() const;

 private:
  Device device_;
  std::chrono::steady_clock::time_point start_;    // of the CPU
  std::shared_ptr<const cuda::EventTimer> timer_;  // null on the CPU
};

}  // namespace tapeformer
