// A row of a matrix in the registers of a warp, and launches with one warp per row.
#pragma once

#include <type_traits>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

// A row of at most K * kWarpSize elements, held by the lanes of a warp. Each lane holds K elements, in groups
// of V adjacent elements. V is 1 or Pack<T>::kSize. If V > 1, rows in memory must be aligned to 16 bytes, and
// the number of elements in a row must be a multiple of V.
template <class T, int V, int K>
struct WarpRow {
  T values[K];

  // Returns the column of the first element of group `group` of this lane.
  __device__ static int column(int group) {
    return (group * kWarpSize + static_cast<int>(threadIdx.x % kWarpSize)) * V;
  }
  // Calls f(k, column) for each element values[k] of this lane in a row of `dim` elements.
  template <class F>
  __device__ static void for_each(int dim, F&& f) {
#pragma unroll(kUnrollFactor <T>)
    for (int k = 0; k < K; ++k)
      if (const int c = column(k / V) + k % V; c < dim) f(k, c);
  }
  // Loads a row of `dim` elements. The elements of `values` beyond the row are set to `padding`.
  template <class S>
  __device__ void load(const S* row, int dim, T padding) {
#pragma unroll(kUnrollFactor <T>)
    for (int group = 0; group < K / V; ++group) {
      const int c = column(group);
#pragma unroll(kUnrollFactor <T>)
      for (int v = 0; v < V; ++v) values[group * V + v] = padding;
      if (c < dim) load_group<V>(row + c, values + group * V);
    }
  }
  template <class S>
  __device__ void store(S* row, int dim) const {
#pragma unroll(kUnrollFactor <T>)
    for (int group = 0; group < K / V; ++group)
      if (const int c = column(group); c < dim) store_group<V>(row + c, values + group * V);
  }
  // Multiplies the row by dropout multipliers. `first` is the index of the first element of the row in the
  // tensor.
  __device__ void apply_dropout(const DropoutMultipliers<T>& factors, int64_t first, int dim) {
#pragma unroll(kUnrollFactor <T>)
    for (int group = 0; group < K / V; ++group) {
      const int c = column(group);
      if (c >= dim) continue;
      T factor[V];
      factors.template fill_multipliers<V>(first + c, factor);
#pragma unroll(kUnrollFactor <T>)
      for (int v = 0; v < V; ++v) values[group * V + v] *= factor[v];
    }
  }
};

inline constexpr int kRowsPerBlock = 8;  // one warp per row

// Returns a launch for a kernel whose warps process n rows. If n exceeds max_blocks * kRowsPerBlock, each
// warp must loop over several rows:
//   for (int64_t row = first_warp_row(); row < n; row += warp_row_stride())
inline LaunchConfig make_warp_row_launch(int64_t n, int64_t max_blocks = 1 << 20,
                                         SourceLocation where = SourceLocation::current()) {
  const int64_t block_count = std::min((n + kRowsPerBlock - 1) / kRowsPerBlock, max_blocks);
  return {dim3(static_cast<unsigned>(block_count)), dim3(kWarpSize * kRowsPerBlock), 0, where};
}
__device__ inline int64_t first_warp_row() {
  return int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarpSize;
}
__device__ inline int64_t warp_row_stride() {
  return int64_t{gridDim.x} * kRowsPerBlock;
}

template <class... T>
bool are_aligned_to_packs(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Calls f(WarpRow<T, V, K>{}) with a WarpRow type for rows of `dim` elements, and returns true. If the rows
// are too wide for every WarpRow type, returns false. `is_aligned` tells whether all arrays are aligned to 16
// bytes. To limit the compile time, also returns false for rows of float with more than 8 * kWarpSize
// elements if Packs cannot be used.
template <class T, class F>
bool visit_warp_row(int64_t dim, bool is_aligned, F&& f) {
  if constexpr (sizeof(T) > sizeof(float)) {  // double has a single row type, because only tests use double
    if (dim > 32 * kWarpSize) return false;
    f(WarpRow<T, 1, 32>{});
    return true;
  } else {
    constexpr int V = Pack<T>::kSize;
    const bool use_packs = is_aligned && dim % V == 0;
    if (use_packs && dim <= 4 * kWarpSize) return f(WarpRow<T, V, 4>{}), true;
    if (use_packs && dim <= 8 * kWarpSize) return f(WarpRow<T, V, 8>{}), true;
    if (use_packs && dim <= 16 * kWarpSize) return f(WarpRow<T, V, 16>{}), true;
    if (use_packs && dim <= 32 * kWarpSize) return f(WarpRow<T, V, 32>{}), true;
    if (dim <= 4 * kWarpSize) return f(WarpRow<T, 1, 4>{}), true;
    if (dim <= 8 * kWarpSize) return f(WarpRow<T, 1, 8>{}), true;
    return false;
  }
}

}  // namespace tapeformer::cuda
