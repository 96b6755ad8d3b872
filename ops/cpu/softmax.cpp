#include "ops/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

template <class F>
void for_rows(int64_t rows, int64_t classes, F&& f) {
  const int64_t grain_rows = std::max<int64_t>((1 << 13) / std::max<int64_t>(classes, 1), 1);
  parallel_for(rows, grain_rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// Returns the maximum of the row. If the maximum is infinite, returns 0, so that a row of -inf does not give
// NaN.
template <class T>
T compute_row_shift(const T* x, int64_t classes) {
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < classes; ++i) largest = x[i] > largest ? x[i] : largest;
  return std::isinf(largest) ? T{0} : largest;
}

template <class T>
T sum_of(const T* row, int64_t classes) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < classes; ++i) total += row[i];
  return total;
}

template <class T>
T logsumexp(const T* row, int64_t classes) {
  const T shift = compute_row_shift(row, classes);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < classes; ++i) total += vmath::exp(row[i] - shift);
  return std::log(total) + shift;
}

}  // namespace

template <class T>
void row_logsumexp(Backend, const T* x, T* lse, int64_t rows, int64_t classes) {
  for_rows(rows, classes, [=](int64_t row) { lse[row] = logsumexp(x + row * classes, classes); });
}

template <class T>
void row_softmax(Backend, const T* x, T* y, int64_t rows, int64_t classes) {
  for_rows(rows, classes, [=](int64_t row) {
    const T* const r = x + row * classes;
    T* const out = y + row * classes;
    const T shift = compute_row_shift(r, classes);
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < classes; ++i) {
      out[i] = vmath::exp(r[i] - shift);
      total += out[i];
    }
    const T inverse = total == 0 ? T{0} : 1 / total;
#pragma omp simd
    for (int64_t i = 0; i < classes; ++i) out[i] *= inverse;
  });
}

template <class T>
void row_softmax_backward(Backend, const T* g, const T* y, T* gx, int64_t rows, int64_t classes) {
  for_rows(rows, classes, [=](int64_t row) {
    const T *const g_row = g + row * classes, *const y_row = y + row * classes;
    T* const gx_row = gx + row * classes;
    T dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < classes; ++i) dot += g_row[i] * y_row[i];
#pragma omp simd
    for (int64_t i = 0; i < classes; ++i) gx_row[i] = y_row[i] * (g_row[i] - dot);
  });
}

template <class T>
void row_log_softmax(Backend, const T* x, T* y, int64_t rows, int64_t classes) {
  for_rows(rows, classes, [=](int64_t row) {
    const T lse = logsumexp(x + row * classes, classes);
    const T shift = lse == -std::numeric_limits<T>::infinity() ? T{0} : lse;  // a row of -inf stays -inf
#pragma omp simd
    for (int64_t i = row * classes; i < (row + 1) * classes; ++i) y[i] = x[i] - shift;
  });
}

template <class T>
void row_log_softmax_backward(Backend, const T* g, const T* y, T* gx, int64_t rows, int64_t classes) {
  for_rows(rows, classes, [=](int64_t row) {
    const T *const g_row = g + row * classes, *const y_row = y + row * classes;
    T* const gx_row = gx + row * classes;
    const T total = sum_of(g_row, classes);
#pragma omp simd
    for (int64_t i = 0; i < classes; ++i) gx_row[i] = g_row[i] - vmath::exp(y_row[i]) * total;
  });
}

template <class T>
void cross_entropy_forward(Backend, const CrossEntropyOptions& options, const T* x, const int64_t* targets,
                           T* lse, T* losses, int64_t rows, int64_t classes) {
  const T smoothing = static_cast<T>(options.label_smoothing), z_loss = static_cast<T>(options.z_loss);
  for_rows(rows, classes, [=](int64_t row) {
    const T* const r = x + row * classes;
    lse[row] = logsumexp(r, classes);
    T loss = lse[row] - (1 - smoothing) * r[targets[row]];
    if (smoothing > 0) loss -= smoothing / static_cast<T>(classes) * sum_of(r, classes);
    if (z_loss > 0) loss += z_loss * lse[row] * lse[row];
    losses[row] = loss;
  });
}

template <class T>
void cross_entropy_backward(Backend, const CrossEntropyOptions& options, const T* x, const T* lse,
                            const int64_t* targets, const T* scale, T* gx, int64_t rows, int64_t classes) {
  const T smoothing = static_cast<T>(options.label_smoothing), z_loss = static_cast<T>(options.z_loss);
  for_rows(rows, classes, [=](int64_t row) {
    T* const out = gx + row * classes;
    if (scale[row] == 0) {
      std::fill_n(out, classes, T{0});
      return;
    }
    const T factor = z_loss > 0 ? scale[row] * (1 + 2 * z_loss * lse[row]) : scale[row];
    const T uniform = scale[row] * smoothing / static_cast<T>(classes);
#pragma omp simd
    for (int64_t i = 0; i < classes; ++i)
      out[i] = vmath::exp(x[row * classes + i] - lse[row]) * factor - uniform;
    out[targets[row]] -= scale[row] * (1 - smoothing);
  });
}

template <class T>
struct SoftmaxKernels {
  inline static const FunctionInstances all{&row_logsumexp<T>,
                                            &row_softmax<T>,
                                            &row_softmax_backward<T>,
                                            &row_log_softmax<T>,
                                            &row_log_softmax_backward<T>,
                                            &cross_entropy_forward<T>,
                                            &cross_entropy_backward<T>};
};
template struct SoftmaxKernels<float>;
template struct SoftmaxKernels<double>;

}  // namespace tapeformer::cpu
