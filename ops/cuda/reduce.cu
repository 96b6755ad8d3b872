#include "ops/kernels/reduce.h"

#include "core/cuda/kernel.h"
#include "core/instances.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements per block of a long vector

// Sums one piece of a row of `size` elements per block.
template <class From, class To>
__global__ void sum_rows_kernel(const From* x, To* out, int64_t size, int64_t pieces) {
  const int64_t row = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int64_t share = (size + pieces - 1) / pieces;
  const int64_t begin = piece * share, end = begin + share < size ? begin + share : size;
  double total = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    total += static_cast<double>(x[row * size + i]);
  total = block_sum(total);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<To>(total);
}

// Sums one column per thread, from top to bottom.
template <class T>
__global__ void sum_columns_kernel(const T* x, T* out, int64_t columns, int64_t size, int64_t inner) {
  for (int64_t i = first_element(); i < columns; i += element_stride()) {
    const T* const column = x + i / inner * size * inner + i % inner;
    double total = 0;
    for (int64_t s = 0; s < size; ++s) total += static_cast<double>(column[s * inner]);
    out[i] = static_cast<T>(total);
  }
}

template <class T>
__global__ void max_kernel(const T* x, T* out, int64_t* index, int64_t columns, int64_t size, int64_t inner) {
  for (int64_t i = first_element(); i < columns; i += element_stride()) {
    const T* const column = x + i / inner * size * inner + i % inner;
    int64_t best = 0;
    for (int64_t s = 1; s < size; ++s)
      if (is_larger(column[s * inner], column[best * inner])) best = s;
    out[i] = column[best * inner];
    index[i] = best;
  }
}

template <class T>
__global__ void scatter_kernel(const T* g, const int64_t* index, T* gx, int64_t n, int64_t size,
                               int64_t inner) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t column = i / (size * inner) * inner + i % inner;
    gx[i] = index[column] == i / inner % size ? g[column] : T{0};
  }
}

}  // namespace

// Computes sums in double, as on the CPU, so that sums of many float32 terms are accurate. Arithmetic in
// double costs little time, because the kernel is memory bound.
template <class T>
void sum_middle(Backend, const T* x, T* out, int64_t outer, int64_t size, int64_t inner) {
  if (inner != 1) {
    launch(sum_columns_kernel<T>, over_elements(outer * inner), x, out, outer * inner, size, inner);
    return;
  }
  const int64_t pieces = (size + kPiece - 1) / kPiece;
  if (pieces <= 1) {
    launch(sum_rows_kernel<T, T>, over_rows(outer), x, out, size, 1);
    return;
  }
  const Scratch<double> partial(outer * pieces);
  launch(sum_rows_kernel<T, double>, over_rows(outer * pieces), x, partial.data(), size, pieces);
  launch(sum_rows_kernel<double, T>, over_rows(outer), partial.data(), out, pieces, 1);
}

template <class T>
void max_middle(Backend, const T* x, T* out, int64_t* index, int64_t outer, int64_t size, int64_t inner) {
  launch(max_kernel<T>, over_elements(outer * inner), x, out, index, outer * inner, size, inner);
}

template <class T>
void scatter_middle(Backend, const T* g, const int64_t* index, T* gx, int64_t outer, int64_t size,
                    int64_t inner) {
  const int64_t n = outer * size * inner;
  launch(scatter_kernel<T>, over_elements(n), g, index, gx, n, size, inner);
}

template <class T>
struct ReduceKernels {
  inline static const Instances all{&sum_middle<T>, &max_middle<T>, &scatter_middle<T>};
};
template struct ReduceKernels<float>;
template struct ReduceKernels<double>;

}  // namespace tapeformer::cuda
