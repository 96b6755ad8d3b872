// TAPEFORMER_HOST_DEVICE marks functions that kernels of both backends call. It is empty without nvcc.
#pragma once

#ifdef __CUDACC__
#define TAPEFORMER_HOST_DEVICE __host__ __device__
#else
#define TAPEFORMER_HOST_DEVICE
#endif
