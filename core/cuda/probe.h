// A probe of the compiled kernels. It needs a kernel, so it is compiled with the kernels.
#pragma once

namespace tapeformer::cuda {

// Returns true if the kernels of this build are compiled for device `index`.
bool kernels_run_on(int index);

}  // namespace tapeformer::cuda
