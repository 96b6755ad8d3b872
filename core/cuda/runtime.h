// CUDA's language, runtime and cuBLAS, or their emulation. Only core/cuda and ops/cuda include it.
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
