// Devices on which tests run.
#pragma once

#include <string>
#include <vector>

#include "core/cuda/devices.h"
#include "core/device.h"
#include "core/device_control.h"

namespace tapeformer::test {

// Returns a list with the first CUDA device, real or emulated, or an empty list if there is none.
inline std::vector<Device> list_cuda_devices() {
  if constexpr (kHasCuda) {
    if (cuda::find_device_problem(0).empty()) return {{DeviceType::cuda, 0}};
  }
  return {};
}

// Returns a list with the CPU and the devices of list_cuda_devices().
inline std::vector<Device> list_devices() {
  std::vector<Device> devices = list_cuda_devices();
  devices.insert(devices.begin(), kCpu);
  return devices;
}

// Returns the reason why list_cuda_devices() is empty.
inline std::string explain_missing_device() {
  if constexpr (kHasCuda)
    return cuda::find_device_problem(0);
  else
    return "this build has no CUDA backend";
}

// Sets the precision of a device to bfloat16 during the lifetime of the object. The destructor sets the
// precision to float32.
class Bfloat16Scope {
 public:
  explicit Bfloat16Scope(Device device) : device_(device) { set_precision(device, Precision::bfloat16); }
  ~Bfloat16Scope() { set_precision(device_, Precision::float32); }
  Bfloat16Scope(const Bfloat16Scope&) = delete;
  Bfloat16Scope& operator=(const Bfloat16Scope&) = delete;

 private:
  Device device_;
};

}  // namespace tapeformer::test
