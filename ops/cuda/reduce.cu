#include "ops/kernels/reduce.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kElementsPerBlock = 1 << 14;  // maximum number of elements of a row that a block sums

// Sums the rows of `x`, which has the shape (rows, size). Each row is divided into `blocks_per_row` parts of
// equal size, except that the last part of a row can be smaller. Each thread block writes the sum of one part
// to `out`, which has the shape (rows, blocks_per_row).
template <class From, class To>
__global__ void sum_rows_kernel(const From* x, To* out, int64_t size, int64_t blocks_per_row) {
  const int64_t row = blockIdx.x / blocks_per_row, block = blockIdx.x % blocks_per_row;
  const int64_t elements_per_block = (size + blocks_per_row - 1) / blocks_per_row;
  const int64_t begin = block * elements_per_block,
                end = begin + elements_per_block < size ? begin + elements_per_block : size;
  double total = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    total += static_cast<double>(x[row * size + i]);
  total = block_sum(total);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<To>(total);
}

// Sums x (outer, size, inner) over the middle dimension. A thread computes one element of out (outer, inner)
// at a time. `columns` is outer * inner.
template <class T>
__global__ void sum_columns_kernel(const T* x, T* out, int64_t columns, int64_t size, int64_t inner) {
  for (int64_t i = first_element(); i < columns; i += element_stride()) {
    const T* const column = x + i / inner * size * inner + i % inner;
    double total = 0;
    for (int64_t s = 0; s < size; ++s) total += static_cast<double>(column[s * inner]);
    out[i] = static_cast<T>(total);
  }
}

// Computes the maximum of `x`, which has the shape (outer, size, inner), over the middle dimension, and the
// index of the maximum in the middle dimension. `columns` is outer * inner.
template <class T>
__global__ void max_kernel(const T* x, T* out, int64_t* index, int64_t columns, int64_t size, int64_t inner) {
  for (int64_t i = first_element(); i < columns; i += element_stride()) {
    const T* const column = x + i / inner * size * inner + i % inner;
    int64_t max_index = 0;
    for (int64_t s = 1; s < size; ++s)
      if (is_larger_or_nan(column[s * inner], column[max_index * inner])) max_index = s;
    out[i] = column[max_index * inner];
    index[i] = max_index;
  }
}

// Sets gx[o][index[o][i]][i] = g[o][i] for all o and i, and all other elements of gx to 0. g and `index` have
// the shape (outer, inner), and gx has the shape (outer, size, inner). n is the number of elements of gx.
template <class T>
__global__ void scatter_kernel(const T* g, const int64_t* index, T* gx, int64_t n, int64_t size,
                               int64_t inner) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t column = i / (size * inner) * inner + i % inner;
    gx[i] = index[column] == i / inner % size ? g[column] : T{0};
  }
}

}  // namespace

// Like the CPU kernel, accumulates sums in double precision, because a float32 sum of many elements is
// inaccurate. Additions in double precision take little time, because the kernels are memory bound.
template <class T>
void sum_middle_dim(Backend, const T* x, T* out, int64_t outer, int64_t size, int64_t inner) {
  if (inner != 1) {
    launch(sum_columns_kernel<T>, make_elementwise_launch(outer * inner), x, out, outer * inner, size, inner);
    return;
  }
  const int64_t blocks_per_row = (size + kElementsPerBlock - 1) / kElementsPerBlock;
  if (blocks_per_row <= 1) {
    launch(sum_rows_kernel<T, T>, make_row_launch(outer), x, out, size, 1);
    return;
  }
  const Scratch<double> partial_sums(outer * blocks_per_row);
  launch(sum_rows_kernel<T, double>, make_row_launch(outer * blocks_per_row), x, partial_sums.data(), size,
         blocks_per_row);
  launch(sum_rows_kernel<double, T>, make_row_launch(outer), partial_sums.data(), out, blocks_per_row, 1);
}

template <class T>
void max_middle_dim(Backend, const T* x, T* out, int64_t* index, int64_t outer, int64_t size, int64_t inner) {
  launch(max_kernel<T>, make_elementwise_launch(outer * inner), x, out, index, outer * inner, size, inner);
}

template <class T>
void scatter_middle_dim(Backend, const T* g, const int64_t* index, T* gx, int64_t outer, int64_t size,
                        int64_t inner) {
  const int64_t n = outer * size * inner;
  launch(scatter_kernel<T>, make_elementwise_launch(n), g, index, gx, n, size, inner);
}

template <class T>
struct ReduceKernels {
  inline static const FunctionInstances all{&sum_middle_dim<T>, &max_middle_dim<T>, &scatter_middle_dim<T>};
};
template struct ReduceKernels<float>;
template struct ReduceKernels<double>;

}  // namespace tapeformer::cuda
