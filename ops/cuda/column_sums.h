// Sums of the columns of a matrix in two stages, in an order that depends only on the shape. Kernels write
// partial sums over their rows, and collect_columns() adds the partial sums.
#pragma once

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

inline constexpr int64_t kMaxParts = 512;  // maximum number of partial sums per column

template <class T>
struct ColumnTargets {
  T* sums[2];  // two arrays (columns,), each of which may be null
};

// Sums the parts of 32 columns of one target per block of 32 x 32 threads.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarp)
    collect_columns_kernel(const T* __restrict__ partial, int64_t parts, int64_t columns, int64_t stride,
                           ColumnTargets<T> targets) {
  __shared__ double group_values[kWarp][kWarp + 1];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  T* const target = blockIdx.y == 0 ? targets.sums[0] : targets.sums[1];
  double sum = 0;
  if (column < columns)
    for (int64_t part = threadIdx.y; part < parts; part += kWarp)
      sum += static_cast<double>(partial[part * stride + blockIdx.y * columns + column]);
  group_values[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Each warp sums one column.
  sum = warp_reduce<Plus>(group_values[threadIdx.x][threadIdx.y]);
  const int64_t own = int64_t{blockIdx.x} * kWarp + threadIdx.y;
  if (threadIdx.x == 0 && own < columns && target) target[own] = static_cast<T>(sum);
}

// Sums partial (parts, count, columns) over the parts, for `count` targets. Writes each sum to its target
// (columns,).
template <class T>
void collect_columns(const T* partial, int64_t parts, int64_t columns, int count, ColumnTargets<T> targets) {
  launch(collect_columns_kernel<T>,
         Launch(dim3(static_cast<unsigned>((columns + kWarp - 1) / kWarp), static_cast<unsigned>(count)),
                dim3(kWarp, kWarp)),
         partial, parts, columns, columns * count, targets);
}

}  // namespace tapeformer::cuda
