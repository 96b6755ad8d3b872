// The CUDA devices of the computer, and the CUDA architectures for which the kernels are compiled. This
// header does not include CUDA's headers. The functions are defined only in builds in which kHasCuda is
// true. These include builds that emulate CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapeformer::cuda {

// Returns true if this build emulates CUDA, so that its kernels run on the CPU (core/emulation).
bool is_emulated();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // the compute capability is major.minor
  int64_t memory_bytes = 0;
};
// Returns the CUDA devices of the computer, or an empty list if there is no driver.
std::vector<DeviceInfo> list_devices();
// Returns the reason why device `index` cannot be used: no driver, no such device, or no kernels for the
// architecture of the device. Returns "" if the device can be used.
std::string find_device_problem(int index);
// driver_version() returns the CUDA version that the driver supports, for example "12.4", or "none" if there
// is no driver. toolkit_version() returns the version of the CUDA toolkit that compiled this build.
std::string driver_version();
std::string toolkit_version();
// Returns the architectures for which the kernels are compiled, such as "90a" and "100". If a name has no
// suffix, as in "100", the build also includes PTX for the architecture.
std::vector<std::string> compiled_architectures();

}  // namespace tapeformer::cuda
