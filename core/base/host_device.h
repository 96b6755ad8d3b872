// TAPEFORMER_HOST_DEVICE marks functions that kernels of both backends call. TAPEFORMER_NOINLINE marks
// functions that nvcc must not inline. Other compilers ignore both macros.
#pragma once

#ifdef __CUDACC__
#define TAPEFORMER_HOST_DEVICE __host__ __device__
#define TAPEFORMER_NOINLINE __noinline__
#else
#define TAPEFORMER_HOST_DEVICE
#define TAPEFORMER_NOINLINE
#endif
