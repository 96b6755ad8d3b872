// The CUDA devices of the computer and the CUDA architectures of this build. This header does not include
// CUDA's headers. The functions are defined in builds with a CUDA backend (kHasCuda), which includes the
// emulation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapeformer::cuda {

// Returns true if the kernels of this build run on the CPU (core/emulation).
bool emulated();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // major and minor number of the compute capability
  int64_t memory = 0;        // in bytes
};
// Returns the devices of the computer. The list is empty if there is no driver.
std::vector<DeviceInfo> devices();
// Returns the reason why a device cannot be used: no driver, no such device, or no kernels for its
// architecture. Returns "" if the device can be used.
std::string problem_with(int index);
// Return the CUDA versions of the driver and of the toolkit. driver_version() returns "none" if there is no
// driver.
std::string driver_version();
std::string toolkit_version();
// Returns the architectures that the kernels are compiled for, such as "90a" and "100". A name without a
// suffix, such as "100", includes PTX.
std::vector<std::string> compiled_architectures();

}  // namespace tapeformer::cuda
