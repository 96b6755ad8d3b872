// Devices on which tests run.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/cuda/devices.h"
#include "core/device.h"
#include "core/device_control.h"

namespace tapeformer::test {

// Returns the reason why there is no CUDA device, real or emulated, or "" if there is one.
inline std::string explain_missing_device() {
  if constexpr (kHasCuda)
    return cuda::find_device_problem(0);
  else
    return "this build has no CUDA backend";
}

// Returns the CPU and, if there is one, the first CUDA device.
inline std::vector<Device> list_devices() {
  std::vector<Device> devices{kCpu};
  if (explain_missing_device().empty()) devices.push_back({DeviceType::cuda, 0});
  return devices;
}

// Returns a list with the first CUDA device. If there is none, returns an empty list and prints a message,
// for which ctest lists the test case as skipped.
inline std::vector<Device> list_cuda_devices() {
  if (explain_missing_device().empty()) return {{DeviceType::cuda, 0}};
  MESSAGE("skipped: " << explain_missing_device());
  return {};
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
