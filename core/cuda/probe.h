// A check whether a device can run the kernels of this build.
#pragma once

namespace tapeformer::cuda {

// Returns true if the kernels of this build can run on device `index`. Throws DeviceError if the CUDA
// runtime reports an error other than a missing kernel.
bool can_run_kernels(int index);

}  // namespace tapeformer::cuda
