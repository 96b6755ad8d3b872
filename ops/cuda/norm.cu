#include "ops/kernels/norm.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

template <class T, class B>
struct NormArrays {
  int64_t rows, dim;
  const T* x;
  const B* branch;
  DropoutMultipliers<T> dropout;
  const T *weight, *bias;
  T eps;
  T *y, *normalized, *inverse_std;
  BFloat16* rounded;
};

// Computes the layer norm. Each warp processes one row at a time. `Row` is a WarpRow.
template <class T, class B, class Row>
__global__ void norm_forward_kernel(NormArrays<T, B> f) {
  const int dim = static_cast<int>(f.dim);
  for (int64_t row = first_warp_row(); row < f.rows; row += warp_row_stride()) {
    const int64_t first = row * dim;
    Row sum, other;
    sum.load(f.x + first, dim, 0);
    if (f.branch) {
      other.load(f.branch + first, dim, 0);
      other.apply_dropout(f.dropout, first, dim);
      Row::for_each(dim, [&](int k, int) { sum.values[k] += other.values[k]; });
    }
    T total = 0, squares = 0;
    Row::for_each(dim, [&](int k, int) { total += sum.values[k]; });
    const T mean = warp_reduce<Plus>(total) / static_cast<T>(dim);
    Row::for_each(dim, [&](int k, int) { squares += (sum.values[k] - mean) * (sum.values[k] - mean); });
    const T inverse = 1 / std::sqrt(warp_reduce<Plus>(squares) / static_cast<T>(dim) + f.eps);
    Row::for_each(dim, [&](int k, int) { sum.values[k] = (sum.values[k] - mean) * inverse; });
    if (f.normalized) sum.store(f.normalized + first, dim);
    if (f.inverse_std && threadIdx.x % kWarpSize == 0) f.inverse_std[row] = inverse;
    other.load(f.weight, dim, 0);
    Row::for_each(dim, [&](int k, int) { sum.values[k] *= other.values[k]; });
    other.load(f.bias, dim, 0);
    Row::for_each(dim, [&](int k, int) { sum.values[k] += other.values[k]; });
    sum.store(f.y + first, dim);
    if (f.rounded) sum.store(f.rounded + first, dim);
  }
}

// Computes the layer norm of rows of any width. Each thread block processes one row. Intermediate results are
// stored in f.normalized, or in f.y if f.normalized is null. Each thread reads only elements that the same
// thread has written, so no barrier is necessary.
template <class T, class B>
__global__ void wide_forward_kernel(NormArrays<T, B> f) {
  const int64_t first = blockIdx.x * f.dim;
  const T* const x = f.x + first;
  T* const y = f.y + first;
  T* const n = f.normalized ? f.normalized + first : y;
  T total = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < f.dim; i += blockDim.x) {
    n[i] = x[i];
    if (f.branch) n[i] += convert_element<T>(f.branch[first + i]) * f.dropout.multiplier(first + i);
    total += n[i];
  }
  const T mean = block_sum(total) / static_cast<T>(f.dim);
  for (int64_t i = threadIdx.x; i < f.dim; i += blockDim.x) squares += (n[i] - mean) * (n[i] - mean);
  const T inverse = 1 / std::sqrt(block_sum(squares) / static_cast<T>(f.dim) + f.eps);
  if (f.inverse_std && threadIdx.x == 0) f.inverse_std[blockIdx.x] = inverse;
  for (int64_t i = threadIdx.x; i < f.dim; i += blockDim.x) {
    n[i] = (n[i] - mean) * inverse;
    y[i] = n[i] * f.weight[i] + f.bias[i];
    if (f.rounded) f.rounded[first + i] = convert_element<BFloat16>(y[i]);
  }
}

template <class T, class B>
struct NormGradients {
  int64_t rows, dim;
  const T* g;
  const BFloat16* g_rounded;
  const T *normalized, *inverse_std, *weight;
  DropoutMultipliers<T> dropout;
  T* gx;
  B* gbranch;
  ColumnSums<T> sums;  // gradients of weight and bias; not computed if sums.partial_sums is null

  // Returns element i of the gradient of y, which is g + g_rounded. A null pointer stands for zeros.
  __device__ T result_gradient(int64_t i) const {
    return (g ? g[i] : T{0}) + (g_rounded ? convert_element<T>(g_rounded[i]) : T{0});
  }
};

// Computes gx and gbranch, and the gradients of weight and bias. Each warp processes one row at a time. `Row`
// is a WarpRow.
template <class T, class B, class Row>
__global__ void norm_backward_kernel(NormGradients<T, B> b) {
  const int dim = static_cast<int>(b.dim), warp = static_cast<int>(threadIdx.x) / kWarpSize;
  Row gweight{}, gbias{};
  for (int64_t row = first_warp_row(); row < b.rows; row += warp_row_stride()) {
    const int64_t first = row * dim;
    Row g{}, n, weight;
    if (b.g) g.load(b.g + first, dim, 0);
    if (b.g_rounded) {
      n.load(b.g_rounded + first, dim, 0);
      Row::for_each(dim, [&](int k, int) { g.values[k] += n.values[k]; });
    }
    n.load(b.normalized + first, dim, 0);
    weight.load(b.weight, dim, 0);
    T mean_g = 0, mean_gn = 0;
    Row::for_each(dim, [&](int k, int) {
      gweight.values[k] += g.values[k] * n.values[k];
      gbias.values[k] += g.values[k];
      g.values[k] *= weight.values[k];
      mean_g += g.values[k];
      mean_gn += g.values[k] * n.values[k];
    });
    mean_g = warp_reduce<Plus>(mean_g) / static_cast<T>(dim);
    mean_gn = warp_reduce<Plus>(mean_gn) / static_cast<T>(dim);
    const T inverse = b.inverse_std[row];
    Row::for_each(
        dim, [&](int k, int) { g.values[k] = inverse * (g.values[k] - mean_g - n.values[k] * mean_gn); });
    g.store(b.gx + first, dim);
    if (!b.gbranch) continue;
    g.apply_dropout(b.dropout, first, dim);
    g.store(b.gbranch + first, dim);
  }
  if (!b.sums.partial_sums) return;                // all threads of the block take the same branch
  T* const sums = get_dynamic_shared_memory<T>();  // (2, dim), sums over the rows of the block
  for (int turn = 0; turn < kRowsPerBlock; ++turn) {
    if (turn == warp)
      Row::for_each(dim, [&](int k, int column) {
        sums[column] = gweight.values[k] + (turn ? sums[column] : T{0});
        sums[dim + column] = gbias.values[k] + (turn ? sums[dim + column] : T{0});
      });
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < 2 * dim; i += static_cast<int>(blockDim.x))
    b.sums.partial_sums[int64_t{blockIdx.x} * 2 * dim + i] = sums[i];
  complete_column_sums(b.sums, int64_t{blockIdx.x}, 0, 0, 2 * int64_t{dim});
}

// Computes gx and gbranch of one row per block, for rows of any width.
template <class T, class B>
__global__ void wide_backward_kernel(NormGradients<T, B> b) {
  const int64_t first = blockIdx.x * b.dim;
  T mean_g = 0, mean_gn = 0;
  for (int64_t i = threadIdx.x; i < b.dim; i += blockDim.x) {
    const T gw = b.result_gradient(first + i) * b.weight[i];
    mean_g += gw;
    mean_gn += gw * b.normalized[first + i];
  }
  mean_g = block_sum(mean_g) / static_cast<T>(b.dim);
  mean_gn = block_sum(mean_gn) / static_cast<T>(b.dim);
  const T inverse = b.inverse_std[blockIdx.x];
  for (int64_t i = threadIdx.x; i < b.dim; i += blockDim.x) {
    const T gw = b.result_gradient(first + i) * b.weight[i];
    const T gx = inverse * (gw - mean_g - b.normalized[first + i] * mean_gn);
    b.gx[first + i] = gx;
    if (b.gbranch) b.gbranch[first + i] = convert_element<B>(gx * b.dropout.multiplier(first + i));
  }
}

// Computes the gradients of weight and bias for rows of any width. blockIdx.x selects 32 columns, and
// blockIdx.y selects the rows that the block sums.
template <class T, class B>
__global__ void wide_weight_gradient_kernel(NormGradients<T, B> b) {
  __shared__ T group_values[2][kRowsPerBlock][kWarpSize];
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + threadIdx.x;
  const unsigned group = threadIdx.y;
  T gweight = 0, gbias = 0;
  if (column < b.dim)
    for (int64_t row = int64_t{blockIdx.y} * kRowsPerBlock + group; row < b.rows;
         row += int64_t{gridDim.y} * kRowsPerBlock) {
      const T g = b.result_gradient(row * b.dim + column);
      gweight += g * b.normalized[row * b.dim + column];
      gbias += g;
    }
  group_values[0][group][threadIdx.x] = gweight;
  group_values[1][group][threadIdx.x] = gbias;
  __syncthreads();
  if (group < 2 && column < b.dim) {
    T sum = 0;
    for (int i = 0; i < kRowsPerBlock; ++i) sum += group_values[group][i][threadIdx.x];
    b.sums.partial_sums[(2 * int64_t{blockIdx.y} + group) * b.dim + column] = sum;
  }
  const int64_t begin = int64_t{blockIdx.x} * kWarpSize,
                end = begin + kWarpSize < b.dim ? begin + kWarpSize : b.dim;
  for (int64_t half = 0; half < 2; ++half)
    complete_column_sums(b.sums, int64_t{blockIdx.y}, 2 * int64_t{blockIdx.x} + half, half * b.dim + begin,
                         half * b.dim + end);
}

}  // namespace

template <class T, class B>
void layer_norm_forward(Backend, int64_t rows, int64_t dim, const T* x, const B* branch,
                        const DropoutMask& dropout, const T* weight, const T* bias, double eps, T* y,
                        T* normalized, T* inverse_std, BFloat16* rounded) {
  const NormArrays<T, B> f{rows,
                           dim,
                           x,
                           branch,
                           DropoutMultipliers<T>(dropout),
                           weight,
                           bias,
                           static_cast<T>(eps),
                           y,
                           normalized,
                           inverse_std,
                           rounded};
  const bool is_aligned = are_aligned_to_packs(x, branch, weight, bias, y, normalized, rounded);
  const bool is_launched = visit_warp_row<T>(dim, is_aligned, [&](auto row) {
    launch(norm_forward_kernel<T, B, decltype(row)>, make_warp_row_launch(rows), f);
  });
  if (!is_launched) launch(wide_forward_kernel<T, B>, make_row_launch(rows), f);
}

template <class T, class B>
void layer_norm_backward(Backend, int64_t rows, int64_t dim, const T* g, const BFloat16* g_rounded,
                         const T* normalized, const T* inverse_std, const T* weight,
                         const DropoutMask& dropout, T* gx, B* gbranch, T* gweight, T* gbias) {
  // The number of partial sums is at least 1, so that the kernel also runs for 0 rows and sets gweight and
  // gbias to 0.
  const int64_t partial_sum_count =
      std::clamp<int64_t>((rows + kRowsPerBlock - 1) / kRowsPerBlock, 1, kMaxPartialSums);
  // The number of thread blocks of wide_weight_gradient_kernel along x
  const int64_t strips = (dim + kWarpSize - 1) / kWarpSize;
  const ColumnSumsWorkspace<T> memory(partial_sum_count, 2 * dim, dim, 2 * strips, gweight, gbias);
  const NormGradients<T, B> b{rows,
                              dim,
                              g,
                              g_rounded,
                              normalized,
                              inverse_std,
                              weight,
                              DropoutMultipliers<T>(dropout),
                              gx,
                              gbranch,
                              memory.sums()};
  const bool is_aligned = are_aligned_to_packs(g, g_rounded, normalized, weight, gx, gbranch);
  const bool is_launched = visit_warp_row<T>(dim, is_aligned, [&](auto row) {
    LaunchConfig shape = make_warp_row_launch(std::max<int64_t>(rows, 1), partial_sum_count);
    shape.shared_bytes = static_cast<size_t>(2 * dim) * sizeof(T);
    launch(norm_backward_kernel<T, B, decltype(row)>, shape, b);
  });
  if (!is_launched) {
    launch(wide_backward_kernel<T, B>, make_row_launch(rows), b);
    launch(wide_weight_gradient_kernel<T, B>,
           LaunchConfig(dim3(static_cast<unsigned>(strips), static_cast<unsigned>(partial_sum_count)),
                        dim3(kWarpSize, kRowsPerBlock)),
           b);
  }
}

template <class T, class B>
struct NormKernels {
  inline static const FunctionInstances all{&layer_norm_forward<T, B>, &layer_norm_backward<T, B>};
};
TAPEFORMER_FLOAT(template struct NormKernels<float, float>; template struct NormKernels<float, BFloat16>;)
TAPEFORMER_DOUBLE(template struct NormKernels<double, double>;)

}  // namespace tapeformer::cuda
