#include "ops/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector.h"
#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // minimum number of elements per thread

int64_t choose_grain_rows(int64_t dim) {
  return std::max<int64_t>(kGrain / std::max<int64_t>(dim, 1), 1);
}

// Computes sum = x + dropout(branch) for one row. `first` is the index of the first element of the row in the
// tensor.
template <class T>
void add_branch(const T* x, const T* branch, const DropoutMask& dropout, int64_t first, T* multipliers,
                T* sum, int64_t dim) {
  if (dropout.is_active()) {
    compute_dropout_multipliers(dropout, first, dim, multipliers);
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i) sum[i] = x[i] + branch[i] * multipliers[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i) sum[i] = x[i] + branch[i];
  }
}

// Computes normalized = (sum - mean) / std of one row, possibly in place, and returns 1 / std. Two passes
// avoid cancellation.
template <class T>
T normalize_row(const T* sum, T* normalized, int64_t dim, double eps) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < dim; ++i) total += sum[i];
  const T mean = total / static_cast<T>(dim);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < dim; ++i) squares += (sum[i] - mean) * (sum[i] - mean);
  const T inverse = 1 / std::sqrt(squares / static_cast<T>(dim) + static_cast<T>(eps));
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) normalized[i] = (sum[i] - mean) * inverse;
  return inverse;
}

// Returns g + g_rounded, the gradient of the result, for the row that begins at element `first`. Either g or
// g_rounded can be null. `sum` is a workspace of `dim` elements.
template <class T>
const T* compute_result_gradient(const T* g, const BFloat16* g_rounded, int64_t first, int64_t dim, T* sum) {
  if constexpr (std::is_same_v<T, float>)
    if (g_rounded) {
      widen(g_rounded + first, dim, sum);
#pragma omp simd
      for (int64_t i = 0; i < (g ? dim : 0); ++i) sum[i] += g[first + i];
      return sum;
    }
  return g + first;
}

// Computes gx, the gradient of one row of the input. Adds the gradients of weight and bias to gweight and
// gbias.
template <class T>
void backpropagate_row(const T* g, const T* normalized, const T* weight, T inverse, T* gx, T* gweight,
                       T* gbias, int64_t dim) {
  T mean_g = 0, mean_gn = 0;
#pragma omp simd reduction(+ : mean_g, mean_gn)
  for (int64_t i = 0; i < dim; ++i) {
    const T gw = g[i] * weight[i];
    mean_g += gw;
    mean_gn += gw * normalized[i];
    gweight[i] += g[i] * normalized[i];
    gbias[i] += g[i];
  }
  mean_g /= static_cast<T>(dim);
  mean_gn /= static_cast<T>(dim);
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) gx[i] = inverse * (g[i] * weight[i] - mean_g - normalized[i] * mean_gn);
}

// Computes gbranch = gx * m, where m contains the dropout multipliers of the row that begins at element
// `first`. `multipliers` is a workspace of `dim` elements.
template <class T, class B>
void compute_branch_gradient(const T* gx, const DropoutMask& dropout, int64_t first, T* multipliers,
                             B* gbranch, int64_t dim) {
  if (!dropout.is_active()) return convert_elements(gx, dim, gbranch);
  compute_dropout_multipliers(dropout, first, dim, multipliers);
#pragma omp simd
  for (int64_t i = 0; i < dim; ++i) multipliers[i] *= gx[i];
  convert_elements(multipliers, dim, gbranch);
}

}  // namespace

template <class T, class B>
void layer_norm_forward(Backend, int64_t rows, int64_t dim, const T* x, const B* branch,
                        const DropoutMask& dropout, const T* weight, const T* bias, double eps, T* y,
                        T* normalized, T* inverse_std, BFloat16* rounded) {
  constexpr bool kConverts = !std::is_same_v<T, B>;
  parallel_for(rows, choose_grain_rows(dim), [&](int64_t begin, int64_t end) {
    Scratch<T> multipliers(dropout.is_active() ? dim : 0), converted(kConverts && branch ? dim : 0);
    for (int64_t row = begin; row < end; ++row) {
      T* const out = y + row * dim;
      T* const n = normalized ? normalized + row * dim : out;
      const T* source = x + row * dim;
      prefetch_row(source + dim, dim);  // the next row
      if (branch) {
        prefetch_row(branch + (row + 1) * dim, dim);
        const T* added = converted.data();
        if constexpr (kConverts)
          widen(branch + row * dim, dim, converted.data());
        else
          added = branch + row * dim;
        add_branch(source, added, dropout, row * dim, multipliers.data(), n, dim);
        source = n;
      }
      const T inverse = normalize_row(source, n, dim, eps);
      if (inverse_std) inverse_std[row] = inverse;
#pragma omp simd
      for (int64_t i = 0; i < dim; ++i) out[i] = n[i] * weight[i] + bias[i];
      if (rounded) std::transform(out, out + dim, rounded + row * dim, convert_element<BFloat16, T>);
    }
  });
}

template <class T, class B>
void layer_norm_backward(Backend, int64_t rows, int64_t dim, const T* g, const BFloat16* g_rounded,
                         const T* normalized, const T* inverse_std, const T* weight,
                         const DropoutMask& dropout, T* gx, B* gbranch, T* gweight, T* gbias) {
  const int64_t parts =
      std::max<int64_t>(std::min<int64_t>(get_thread_count(), rows / choose_grain_rows(dim)), 1);
  Scratch<T> partial(2 * parts * dim);
  std::fill_n(partial.data(), 2 * parts * dim, T{0});
  parallel_for(parts, 1, [&](int64_t part_begin, int64_t part_end) {
    Scratch<T> multipliers(gbranch && dropout.is_active() ? dim : 0), sum(g_rounded ? dim : 0);
    for (int64_t part = part_begin; part < part_end; ++part)
      for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        T* const gx_row = gx + row * dim;
        // Prefetch the next row.
        if (g) prefetch_row(g + (row + 1) * dim, dim);
        if (g_rounded) prefetch_row(g_rounded + (row + 1) * dim, dim);
        prefetch_row(normalized + (row + 1) * dim, dim);
        const T* const g_row = compute_result_gradient(g, g_rounded, row * dim, dim, sum.data());
        backpropagate_row(g_row, normalized + row * dim, weight, inverse_std[row], gx_row,
                          partial.data() + 2 * part * dim, partial.data() + (2 * part + 1) * dim, dim);
        if (gbranch)
          compute_branch_gradient(gx_row, dropout, row * dim, multipliers.data(), gbranch + row * dim, dim);
      }
  });
  auto collect = [&](int64_t parameter, T* out) {
    if (!out) return;
    std::fill_n(out, dim, T{0});
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < dim; ++i) out[i] += partial.data()[(2 * part + parameter) * dim + i];
  };
  collect(0, gweight);
  collect(1, gbias);
}

template <class T, class B>
struct NormKernels {
  inline static const FunctionInstances all{&layer_norm_forward<T, B>, &layer_norm_backward<T, B>};
};
template struct NormKernels<float, float>;
template struct NormKernels<double, double>;
template struct NormKernels<float, BFloat16>;

}  // namespace tapeformer::cpu
