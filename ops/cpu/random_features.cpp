#include "ops/kernels/random_features.h"

#include <algorithm>
#include <limits>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

template <class F>
void for_feature_rows(const RandomFeatureShape& s, F&& f) {
  const int64_t grain = std::max<int64_t>((1 << 13) / std::max<int64_t>(s.features, 1), 1);
  parallel_for(s.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// Returns the value `shift` for the features exp(u[i] - shift) of one row of the input. x (dim,) is the row
// of the input, and u (features,) is scale * projection * x.
template <class T>
T compute_exponent_shift(const RandomFeatureShape& s, const T* x, const T* u) {
  if (s.feature_map == RandomFeatureMap::softmax_key) {
    T squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < s.dim; ++i) squares += x[i] * x[i];
    return squares * static_cast<T>(s.scale * s.scale / 2);
  }
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < s.features; ++i) largest = u[i] > largest ? u[i] : largest;
  return largest;
}

}  // namespace

template <class T>
void random_features_forward(Backend, const RandomFeatureShape& s, const T* x, T* y) {
  for_feature_rows(s, [=](int64_t row) {
    T* const u = y + row * s.features;
    if (s.feature_map == RandomFeatureMap::relu) {
      const T offset = static_cast<T>(s.offset);
#pragma omp simd
      for (int64_t i = 0; i < s.features; ++i) u[i] = (u[i] < 0 ? T{0} : u[i]) + offset;
      return;
    }
    const T shift = compute_exponent_shift(s, x + row * s.dim, u);
#pragma omp simd
    for (int64_t i = 0; i < s.features; ++i) u[i] = vmath::exp(u[i] - shift);
  });
}

template <class T>
void random_features_backward(Backend, const RandomFeatureShape& s, const T* x, const T* y, const T* g, T* gu,
                              T* gx) {
  for_feature_rows(s, [=](int64_t row) {
    const T* const features = y + row * s.features;
    const T* const gradient = g + row * s.features;
    T* const target = gu + row * s.features;
    T* const direct = gx + row * s.dim;
    if (s.feature_map == RandomFeatureMap::relu) {
      const T offset = static_cast<T>(s.offset);
#pragma omp simd
      for (int64_t i = 0; i < s.features; ++i) target[i] = features[i] > offset ? gradient[i] : T{0};
      std::fill_n(direct, s.dim, T{0});
      return;
    }
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < s.features; ++i) {
      target[i] = features[i] * gradient[i];
      total += target[i];
    }
    const T factor =
        s.feature_map == RandomFeatureMap::softmax_key ? -total * static_cast<T>(s.scale * s.scale) : T{0};
    const T* const input = x + row * s.dim;
#pragma omp simd
    for (int64_t i = 0; i < s.dim; ++i) direct[i] = factor * input[i];
  });
}

template <class T>
struct RandomFeatureKernels {
  inline static const FunctionInstances all{&random_features_forward<T>, &random_features_backward<T>};
};
template struct RandomFeatureKernels<float>;
template struct RandomFeatureKernels<double>;

}  // namespace tapeformer::cpu
