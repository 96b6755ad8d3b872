// What only the compiler of the kernels knows: it differs between the device and its emulation.
#pragma once

namespace tapeformer::cuda {

// True when the kernels of this build are compiled for the device.
bool kernels_run_on(int index);
// TAPEFORMER_CUDA_SYNC: whether the host waits after each kernel; never in the emulation, where it has no
// need to.
bool synchronous();
// Forgets the error that CUDA keeps for the next call.
void clear_error();

}  // namespace tapeformer::cuda
