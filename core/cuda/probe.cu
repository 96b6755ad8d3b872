#include "core/cuda/probe.h"

#include "core/cuda/status.h"

namespace tapeformer::cuda {

#ifdef TAPEFORMER_CUDA_EMULATED

bool can_run_kernels(int) {
  return true;
}

#else

namespace {

__global__ void do_nothing() {}

}  // namespace

bool can_run_kernels(int index) {
  int previous = 0;
  cudaGetDevice(&previous);
  check_status(cudaSetDevice(index));
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, do_nothing);
  if (status != cudaSuccess) clear_error();
  check_status(cudaSetDevice(previous));
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction)
    check_status(status);
  return status == cudaSuccess;
}

#endif

}  // namespace tapeformer::cuda
