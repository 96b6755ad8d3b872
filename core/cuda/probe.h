// Probe of the architectures of the compiled kernels. It contains a kernel, so it is compiled with the
// kernels.
#pragma once

namespace tapeformer::cuda {

// Returns true if the kernels of this build are compiled for device `index`.
bool kernels_run_on(int index);

}  // namespace tapeformer::cuda
