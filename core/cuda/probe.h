// A check whether the kernels of this build run on a device. The check uses a kernel, so its source file is
// compiled with the kernels.
#pragma once

namespace tapeformer::cuda {

// Returns true if the kernels of this build are compiled for device `index`.
bool kernels_run_on(int index);

}  // namespace tapeformer::cuda
