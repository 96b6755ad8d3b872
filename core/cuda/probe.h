// A test whether a device can run the kernels of this build. The test looks up a kernel in the compiled code,
// so probe.cu is compiled for the same architectures as all kernels.
#pragma once

namespace tapeformer::cuda {

// Returns true if the kernels of this build can run on device `index`. Throws DeviceError for other failures
// of the device.
bool can_run_kernels(int index);

}  // namespace tapeformer::cuda
