// Checks of the status codes that the CUDA runtime and cuBLAS return.
#pragma once

#include "core/base/source_location.h"
#include "core/cuda/runtime.h"

namespace tapeformer::cuda {

// Throws an exception with the location of the call if the status is an error: OutOfMemoryError if device
// memory is exhausted, DeviceError otherwise.
void check_status(cudaError_t status, SourceLocation where = SourceLocation::current());
void check_status(cublasStatus_t status, SourceLocation where = SourceLocation::current());

// Clears the last error of the CUDA runtime, so that later calls do not report the same error again.
void clear_error();

}  // namespace tapeformer::cuda
