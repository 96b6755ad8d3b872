#include "core/cuda/status.h"

#include "core/base/errors.h"

namespace tapeformer::cuda {
namespace {

std::string to_text(const SourceLocation& where) {
  return concat_text(where.file, ":", where.line);
}

}  // namespace

void check_status(cudaError_t status, SourceLocation where) {
  if (status == cudaSuccess) return;
  clear_error();
  const std::string text = concat_text("CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
                                       ") at ", to_text(where));
  if (status == cudaErrorMemoryAllocation) throw OutOfMemoryError("out of memory: " + text);
  throw DeviceError(text);
}

void check_status(cublasStatus_t status, SourceLocation where) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(concat_text("cuBLAS: ", cublasGetStatusString(status), " at ", to_text(where)));
}

#ifdef TAPEFORMER_CUDA_EMULATED
void clear_error() {}
#else
void clear_error() {
  cudaGetLastError();
}
#endif

}  // namespace tapeformer::cuda
