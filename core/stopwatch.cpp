#include "core/stopwatch.h"

#include "core/cuda/transfers.h"

namespace tapeformer {

Stopwatch::Stopwatch(Device device) : device_(device) {
  if (device.is_cpu()) {
    start_ = std::chrono::steady_clock::now();
  } else if constexpr (kHasCuda) {
    const DeviceScope scope(device, "Stopwatch");
    timer_ = std::make_shared<const cuda::EventTimer>();
  }
}

double Stopwatch::measure_elapsed_seconds() const {
  if constexpr (kHasCuda)
    if (timer_) {
      const DeviceScope scope(device_, "Stopwatch");
      return timer_->measure_elapsed_seconds();
    }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace tapeformer
