// Includes the headers of the CUDA runtime and of cuBLAS, or the headers of their emulation. Only files in
// core/cuda and ops/cuda include this header.
#pragma once

#ifdef TAPEFORMER_CUDA_EMULATED
#include "core/emulation/cublas.h"
#include "core/emulation/cublas_lt.h"
#include "core/emulation/runtime.h"
#else
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#endif
