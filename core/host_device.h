// Marks functions that kernels of both machines call. A compiler without CUDA sees nothing.
#pragma once

#ifdef __CUDACC__
#define TAPEFORMER_HOST_DEVICE __host__ __device__
#else
#define TAPEFORMER_HOST_DEVICE
#endif
