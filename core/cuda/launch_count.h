// The number of launches, which tests compare with budgets. Needs no headers of CUDA.
#pragma once

#include <cstdint>

namespace tapeformer::cuda {

// Number of kernels and matrix products that this thread has launched, or has recorded in a graph.
inline constinit thread_local int64_t launch_count = 0;

}  // namespace tapeformer::cuda
