// Rows in the registers of a warp.
#pragma once

#include <type_traits>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

// A row with K elements per lane, in groups of V adjacent elements. V is 1 or the size of a Pack. Packs
// require rows that are aligned to 16 bytes and have a multiple of V elements.
template <class T, int V, int K>
struct WarpRow {
  static constexpr int kGroup = V;
  static constexpr int kMaxWidth = K * kWarpSize;
  T values[K];

  // Returns the first column of group `group` in this lane.
  __device__ static int column(int group) {
    return (group * kWarpSize + static_cast<int>(threadIdx.x % kWarpSize)) * V;
  }
  // Calls f(index of the value, column) for the elements of a row of `dim`.
  template <class F>
  __device__ static void for_each(int dim, F&& f) {
#pragma unroll(kUnrolled <T>)
    for (int k = 0; k < K; ++k)
      if (const int c = column(k / V) + k % V; c < dim) f(k, c);
  }
  template <class S>
  __device__ void load(const S* row, int dim, T padding) {
#pragma unroll(kUnrolled <T>)
    for (int group = 0; group < K / V; ++group) {
      const int c = column(group);
#pragma unroll(kUnrolled <T>)
      for (int v = 0; v < V; ++v) values[group * V + v] = padding;
      if (c < dim) load_group<V>(row + c, values + group * V);
    }
  }
  template <class S>
  __device__ void store(S* row, int dim) const {
#pragma unroll(kUnrolled <T>)
    for (int group = 0; group < K / V; ++group)
      if (const int c = column(group); c < dim) store_group<V>(row + c, values + group * V);
  }
  // Applies dropout to the row that begins at element `first`.
  __device__ void drop(const DropoutFactors<T>& factors, int64_t first, int dim) {
#pragma unroll(kUnrolled <T>)
    for (int group = 0; group < K / V; ++group) {
      const int c = column(group);
      if (c >= dim) continue;
      T factor[V];
      factors.template fill_multipliers<V>(first + c, factor);
#pragma unroll(kUnrolled <T>)
      for (int v = 0; v < V; ++v) values[group * V + v] *= factor[v];
    }
  }
};

inline constexpr int kRowsPerBlock = 8;  // rows and warps per block

// Returns a launch with one warp per row, or fewer warps that loop over the rows (warp_of_grid,
// warps_of_grid).
inline Launch over_warp_rows(int64_t n, int64_t max_blocks = 1 << 20,
                             SourceLocation where = SourceLocation::current()) {
  const int64_t blocks = std::min((n + kRowsPerBlock - 1) / kRowsPerBlock, max_blocks);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kWarpSize * kRowsPerBlock), 0, where};
}
__device__ inline int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarpSize;
}
__device__ inline int64_t warps_of_grid() {
  return int64_t{gridDim.x} * kRowsPerBlock;
}

template <class... T>
bool aligned_to_packs(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Calls f(WarpRow<T, V, K>{}) with the narrowest type for rows of `dim` elements. Returns false if there is
// no such type. `aligned` states that all arrays are aligned to 16 bytes. To save compile time, rows without
// Packs are limited to 8 * kWarpSize elements.
template <class T, class F>
bool with_warp_row(int64_t dim, bool aligned, F&& f) {
  if constexpr (sizeof(T) > sizeof(float)) {  // double has a single row type, because only tests use double
    if (dim > 32 * kWarpSize) return false;
    f(WarpRow<T, 1, 32>{});
    return true;
  } else {
    constexpr int V = Pack<T>::kSize;
    const bool packs = aligned && dim % V == 0;
    if (packs && dim <= 4 * kWarpSize) return f(WarpRow<T, V, 4>{}), true;
    if (packs && dim <= 8 * kWarpSize) return f(WarpRow<T, V, 8>{}), true;
    if (packs && dim <= 16 * kWarpSize) return f(WarpRow<T, V, 16>{}), true;
    if (packs && dim <= 32 * kWarpSize) return f(WarpRow<T, V, 32>{}), true;
    if (dim <= 4 * kWarpSize) return f(WarpRow<T, 1, 4>{}), true;
    if (dim <= 8 * kWarpSize) return f(WarpRow<T, 1, 8>{}), true;
    return false;
  }
}

}  // namespace tapeformer::cuda
