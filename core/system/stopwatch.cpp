#include "core/system/stopwatch.h"

#include "core/cuda/transfers.h"

namespace tapeformer {

Stopwatch::Stopwatch(Device device) : device_(device) {
  on_device(
      device, "Stopwatch", [&] { start_ = std::chrono::steady_clock::now(); },
      [&] { on_device_ = std::make_shared<const cuda::EventTimer>(); });
}

double Stopwatch::seconds() const {
  double seconds = 0;
  on_device(
      device_, "Stopwatch",
      [&] { seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); },
      [&] { seconds = on_device_->seconds(); });
  return seconds;
}

}  // namespace tapeformer
