// The epilogue of linear layers and matrix products with few rows on the CPU, used in training and decoding.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/cpu/bfloat16.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/activation_functions.h"

namespace tapeformer::cpu {

inline constexpr int64_t kMaxRowsWithoutPacking = 4;  // maximum number of rows of multiply_few_rows()
inline constexpr int64_t kMinMultiplicationsPerThread =
    1 << 17;  // minimum number of multiplications per thread

// Adds the bias to the row y of n elements, applies the activation, and multiplies the row by the dropout
// multipliers. If `bias` is null, no bias is added. If `multipliers` is null, no dropout is applied. If
// needs_preactivation(activation) is true and `preactivation` is not null, writes the input of the
// activation.
template <class T, class Y>
void apply_epilogue(T* y, const T* bias, Activation activation, Y* preactivation, const T* multipliers,
                    int64_t n) {
  if (bias) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
  }
  if (needs_preactivation(activation) && preactivation) convert_elements(y, n, preactivation);
  if (activation != Activation::none)
    visit_activation(activation, [&](auto constant) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = ActivationFunction<constant()>::template value<VectorMath>(y[i]);
    });
  if (multipliers) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] *= multipliers[i];
  }
}

// Like apply_epilogue(), but writes the result to `target`. After the call, the contents of y are
// unspecified.
template <class T, class Y>
void apply_epilogue_into(T* y, const T* bias, Activation activation, Y* preactivation, const T* multipliers,
                         int64_t n, Y* target) {
  if (needs_preactivation(activation) || multipliers) {
    apply_epilogue(y, bias, activation, preactivation, multipliers, n);
    return convert_elements(y, n, target);
  }
  const bool is_relu = activation == Activation::relu;
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    Vector<T> v = load_first(y + i, n - i);
    if (bias) v += load_first(bias + i, n - i);
    if (is_relu) v = v < 0 ? Vector<T>{} : v;  // keeps NaN
    store_first(target + i, v, n - i);
  }
}

// Number of outputs that multiply_few_rows() computes at the same time. Sums of different outputs are
// independent, which hides the latency of additions.
inline constexpr int64_t kOutputs = 4;

// Calls f(first output, number of outputs) for each group of kOutputs outputs, in parallel. The last group
// can have fewer outputs.
template <class F>
void for_output_groups(const LinearShape& shape, F&& f) {
  const int64_t grain = std::max<int64_t>(
      kMinMultiplicationsPerThread / std::max<int64_t>(shape.in * shape.rows * kOutputs, 1), 1);
  parallel_for((shape.out + kOutputs - 1) / kOutputs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kOutputs; first < std::min(end * kOutputs, shape.out); first += kOutputs)
      f(first, std::min(kOutputs, shape.out - first));
  });
}

// Computes y (rows, out) = x (rows, in) wᵀ for at most kMaxRowsWithoutPacking rows. Rounds the weights to O.
// Unlike BLAS, does not pack the weights.
template <class O, class T>
void multiply_few_rows(const LinearShape& shape, const O* x, const T* w, T* y) {
  const int64_t in = shape.in;
  for_output_groups(shape, [&](int64_t first, int64_t count) {
    const T* const w0 = w + first * in;
    const T* const w1 = w0 + (count > 1 ? in : 0);
    const T* const w2 = w0 + (count > 2 ? 2 * in : 0);
    const T* const w3 = w0 + (count > 3 ? 3 * in : 0);
    for (int64_t row = 0; row < shape.rows; ++row) {
      const O* const xr = x + row * in;
      T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
      for (int64_t i = 0; i < in; ++i) {
        const T v = static_cast<T>(xr[i]);
        s0 += v * static_cast<T>(O(w0[i]));
        s1 += v * static_cast<T>(O(w1[i]));
        s2 += v * static_cast<T>(O(w2[i]));
        s3 += v * static_cast<T>(O(w3[i]));
      }
      const T sums[kOutputs] = {s0, s1, s2, s3};
      std::copy_n(sums, count, y + row * shape.out + first);
    }
  });
}

}  // namespace tapeformer::cpu
