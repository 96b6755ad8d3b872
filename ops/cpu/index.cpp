#include "ops/kernels/index.h"

#include <algorithm>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {

namespace {

// Calls f(i, j) for each element index[i] of `index` (outer_size, index_size, inner_size). index[i] is a
// position along the middle dimension of a tensor (outer_size, size, inner_size), and j is the offset of the
// element at this position in the tensor.
template <class F>
void for_indexed(const GatherShape& s, const int64_t* index, F f) {
  parallel_for(s.outer_size,
               std::max<int64_t>((1 << 14) / std::max<int64_t>(s.index_size * s.inner_size, 1), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t o = begin; o < end; ++o)
                   for (int64_t c = 0; c < s.index_size; ++c)
                     for (int64_t i = 0; i < s.inner_size; ++i) {
                       const int64_t at = (o * s.index_size + c) * s.inner_size + i;
                       f(at, (o * s.size + index[at]) * s.inner_size + i);
                     }
               });
}

}  // namespace

template <class T>
void gather_middle_dim(Backend, const GatherShape& s, const T* x, const int64_t* index, T* y) {
  for_indexed(s, index, [=](int64_t at, int64_t selected) { y[at] = x[selected]; });
}

template <class T>
void scatter_add_middle_dim(Backend, const GatherShape& s, const T* x, const int64_t* index, T* y) {
  for_indexed(s, index, [=](int64_t at, int64_t selected) { y[selected] += x[at]; });
}

template <class T>
void gather_rows(Backend, const T* table, int64_t, const int64_t* index, T* y, int64_t count, int64_t dim) {
  parallel_for(count, std::max<int64_t>((1 << 15) / std::max<int64_t>(dim, 1), 1),
               [=](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) std::copy_n(table + index[i] * dim, dim, y + i * dim);
               });
}

// Divides the columns among the threads, so that rows with equal indices are added in a fixed order.
template <class T>
void scatter_add_rows(Backend, const T* g, const int64_t* index, T* table, int64_t, int64_t count,
                      int64_t dim) {
  const int64_t grain = count * dim < (1 << 15) ? dim : 16;
  parallel_for(dim, grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      T* const row = table + index[i] * dim;
      const T* const from = g + i * dim;
#pragma omp simd
      for (int64_t d = begin; d < end; ++d) row[d] += from[d];
    }
  });
}

template <class T, class Index>
void embed_rows(Backend, const T* table, int64_t, const Index* tokens, const T* positions, const T* added,
                int64_t position, T* out, int64_t batch, int64_t value_dim, int64_t position_dim) {
  const int64_t width = value_dim + position_dim;
  for (int64_t b = 0; b < batch; ++b) {
    T* const row = out + b * width;
    std::copy_n(table + static_cast<int64_t>(tokens[b]) * value_dim, value_dim, row);
    std::copy_n(positions + position * position_dim, position_dim, row + value_dim);
    if (!added) continue;
    for (int64_t i = 0; i < width; ++i) row[i] += added[position * width + i];
  }
}

template <class T>
struct IndexKernels {
  inline static const FunctionInstances all{
      &gather_middle_dim<T>,   &scatter_add_middle_dim<T>, &gather_rows<T>,        &scatter_add_rows<T>,
      &embed_rows<T, uint8_t>, &embed_rows<T, int32_t>,    &embed_rows<T, int64_t>};
};
template struct IndexKernels<float>;
template struct IndexKernels<double>;

}  // namespace tapeformer::cpu
