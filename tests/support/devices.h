// The columns of the op table: the machines that this build and this computer have beside the CPU.
#pragma once

#include <string>
#include <vector>

#include "core/cuda/devices.h"
#include "core/device.h"

namespace tapeformer::test {

// The emulated or the real first CUDA device; none in a build without CUDA or on a machine without a device.
inline std::vector<Device> other_devices() {
  if constexpr (kHasCuda) {
    if (cuda::problem_with(0).empty()) return {{DeviceType::cuda, 0}};
  }
  return {};
}

inline std::string why_no_device() {
  if constexpr (kHasCuda)
    return cuda::problem_with(0);
  else
    return "this build has no CUDA backend";
}

}  // namespace tapeformer::test
