// Rows that a warp holds in its registers.
#pragma once

#include <type_traits>

#include "core/cuda/kernel.h"
#include "core/dtype.h"

namespace tapeformer::cuda {

// V elements that lie together, on their way from or into memory of another type or the same. V is 1 or the
// size of a Pack of T.
template <int V, class S>
struct alignas(V * sizeof(S)) Group {
  S values[V];
};
template <int V, class S, class T>
__device__ void load_group(const S* from, T* values) {
  const auto group = *reinterpret_cast<const Group<V, S>*>(from);
#pragma unroll(kUnrolled <T>)
  for (int v = 0; v < V; ++v) values[v] = convert_element<T>(group.values[v]);
}
template <int V, class S, class T>
__device__ void store_group(S* to, const T* values) {
  Group<V, S> group;
#pragma unroll(kUnrolled <T>)
  for (int v = 0; v < V; ++v) group.values[v] = convert_element<S>(values[v]);
  *reinterpret_cast<Group<V, S>*>(to) = group;
}

// K elements in each lane, in groups of V that lie together: 1, or the size of a Pack, for which rows must
// begin at multiples of 16 bytes and have a multiple of V elements.
template <class T, int V, int K>
struct WarpRow {
  static constexpr int kGroup = V;
  static constexpr int kWidest = K * kWarp;
  T values[K];

  // The first column of group `group` of this lane.
  __device__ static int column(int group) {
    return (group * kWarp + static_cast<int>(threadIdx.x % kWarp)) * V;
  }
  // f(index of the value, column) for the elements of a row of `dim`.
  template <class F>
  __device__ static void for_each(int dim, F&& f) {
#pragma unroll(kUnrolled <T>)
    for (int k = 0; k < K; ++k)
      if (const int c = column(k / V) + k % V; c < dim) f(k, c);
  }
  template <class S>
  __device__ void load(const S* row, int dim, T otherwise) {
#pragma unroll(kUnrolled <T>)
    for (int group = 0; group < K / V; ++group) {
      const int c = column(group);
#pragma unroll(kUnrolled <T>)
      for (int v = 0; v < V; ++v) values[group * V + v] = otherwise;
      if (c < dim) load_group<V>(row + c, values + group * V);
    }
  }
  template <class S>
  __device__ void store(S* row, int dim) const {
#pragma unroll(kUnrolled <T>)
    for (int group = 0; group < K / V; ++group)
      if (const int c = column(group); c < dim) store_group<V>(row + c, values + group * V);
  }
  // Multiplies by what dropout does to the row that begins at `first`.
  __device__ void drop(const DropoutFactors<T>& factors, int64_t first, int dim) {
#pragma unroll(kUnrolled <T>)
    for (int group = 0; group < K / V; ++group) {
      const int c = column(group);
      if (c >= dim) continue;
      T factor[V];
      factors.template fill<V>(first + c, factor);
#pragma unroll(kUnrolled <T>)
      for (int v = 0; v < V; ++v) values[group * V + v] *= factor[v];
    }
  }
};

inline constexpr int kRowsOfBlock = 8;  // blocks of 8 warps

// A warp for each of n rows, or fewer that go over them in strides: warp_of_grid(), warps_of_grid().
inline Launch over_warp_rows(int64_t n, int64_t most_blocks = 1 << 20,
                             SourceLocation where = SourceLocation::current()) {
  const int64_t blocks = std::min((n + kRowsOfBlock - 1) / kRowsOfBlock, most_blocks);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kWarp * kRowsOfBlock), 0, where};
}
__device__ inline int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
}
__device__ inline int64_t warps_of_grid() {
  return int64_t{gridDim.x} * kRowsOfBlock;
}

template <class... T>
bool aligned_to_packs(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Calls f(WarpRow<T, V, K>{}) with the narrowest type that holds rows of `dim`; false where none does.
// `aligned` says that the arrays begin at multiples of 16 bytes. Rows that Packs do not fit are held while
// they are short: the widest types are most of what there is to compile.
template <class T, class F>
bool with_warp_row(int64_t dim, bool aligned, F&& f) {
  if constexpr (sizeof(T) > sizeof(float)) {  // one of them: see kUnrolled
    if (dim > 32 * kWarp) return false;
    f(WarpRow<T, 1, 32>{});
    return true;
  } else {
    constexpr int V = Pack<T>::kSize;
    const bool packs = aligned && dim % V == 0;
    if (packs && dim <= 4 * kWarp) return f(WarpRow<T, V, 4>{}), true;
    if (packs && dim <= 8 * kWarp) return f(WarpRow<T, V, 8>{}), true;
    if (packs && dim <= 16 * kWarp) return f(WarpRow<T, V, 16>{}), true;
    if (packs && dim <= 32 * kWarp) return f(WarpRow<T, V, 32>{}), true;
    if (dim <= 4 * kWarp) return f(WarpRow<T, 1, 4>{}), true;
    if (dim <= 8 * kWarp) return f(WarpRow<T, 1, 8>{}), true;
    return false;
  }
}

}  // namespace tapeformer::cuda
