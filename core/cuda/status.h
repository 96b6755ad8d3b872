// Status codes of the CUDA runtime and of cuBLAS.
#pragma once

#include "core/cuda/runtime.h"
#include "core/source_location.h"

namespace tapeformer::cuda {

// Throws OutOfMemory or DeviceError, with the location of the call, unless the status is success.
void check_status(cudaError_t status, SourceLocation where = SourceLocation::current());
void check_status(cublasStatus_t status, SourceLocation where = SourceLocation::current());

// Clears the last error of the CUDA runtime. Otherwise a later call reports it again.
void clear_error();

}  // namespace tapeformer::cuda
