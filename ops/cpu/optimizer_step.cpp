#include "ops/kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;       // minimum number of elements per thread
constexpr int64_t kCacheBlock = 1 << 10;  // elements of several arrays, which stay in the cache between loops

template <class T>
void step_one(const UpdateRule& rule, double gradient_scale, double max_value,
              const ParameterArrays<T>& arrays) {
  T *const parameter = arrays.parameter, *const first = arrays.first_moment,
           *const second = arrays.second_moment;
  const T* const gradient = arrays.gradient;
  const T limit = static_cast<T>(max_value);
  const T scale = static_cast<T>(gradient_scale), l2 = static_cast<T>(arrays.decays ? rule.l2 : 0);
  const T momentum = static_cast<T>(rule.momentum), gain = static_cast<T>(rule.gain);
  const T beta2 = static_cast<T>(rule.beta2), rest2 = static_cast<T>(1 - rule.beta2);
  const T shrink = static_cast<T>(arrays.decays ? rule.shrink : 1), step = static_cast<T>(rule.step_size);
  const T second_scale = static_cast<T>(rule.second_scale), eps = static_cast<T>(rule.eps);
  const auto update_block = [=, adaptive = rule.adaptive](int64_t begin, int64_t end) {
    if (second) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const T g = clamp(scale * gradient[i], limit) + l2 * parameter[i];
        second[i] = beta2 * second[i] + rest2 * g * g;
      }
    }
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      first[i] = momentum * first[i] + gain * (clamp(scale * gradient[i], limit) + l2 * parameter[i]);
    if (adaptive) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i)
        parameter[i] = shrink * parameter[i] - step * first[i] / (std::sqrt(second[i]) * second_scale + eps);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) parameter[i] = shrink * parameter[i] - step * first[i];
    }
  };
  parallel_for(arrays.n, kGrain, [&](int64_t begin, int64_t end) {
    for (; begin < end; begin += kCacheBlock) update_block(begin, std::min(begin + kCacheBlock, end));
  });
}

template <class T>
double compute_squared_norm(const T* x, int64_t n) {
  const int64_t pieces = (n + kGrain - 1) / kGrain;
  std::vector<double> partial(static_cast<size_t>(pieces));
  parallel_for(pieces, 2, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const T* const own = x + piece * kGrain;
      const int64_t count = std::min(n - piece * kGrain, kGrain);
      double total = 0;
#pragma omp simd reduction(+ : total)
      for (int64_t i = 0; i < count; ++i) total += static_cast<double>(own[i]) * static_cast<double>(own[i]);
      partial[static_cast<size_t>(piece)] = total;
    }
  });
  double total = 0;
  for (const double value : partial) total += value;
  return total;
}

}  // namespace

template <class T>
void compute_squared_norms(Backend, const ParameterArrays<T>* list, int64_t count, double* squares) {
  for (int64_t i = 0; i < count; ++i) squares[i] = compute_squared_norm(list[i].gradient, list[i].n);
}

void compute_clip_scales(Backend, const Clipping& clipping, const double* squares, int64_t count,
                         double* scales, double* norm) {
  const double scale = clipping.gradient_scale;
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += squares[i];
  *norm = std::sqrt(total) * std::abs(scale);
  for (int64_t i = 0; i < count; ++i) {
    const double own = clipping.per_tensor ? std::sqrt(squares[i]) * std::abs(scale) : *norm;
    scales[i] = scale;
    if (clipping.max_norm > 0) scales[i] *= std::min(1.0, clipping.max_norm / (own + 1e-6));
  }
}

template <class T>
void apply_optimizer_step(Backend, const UpdateRule* rule, const ParameterArrays<T>* list, int64_t count,
                          const double* scales, double max_value) {
  for (int64_t i = 0; i < count; ++i) step_one(*rule, scales[i], max_value, list[i]);
}

template <class T>
void update_moving_average(Backend, T* average, const T* value, const UpdateRule* rule, int64_t n) {
  const T weight = static_cast<T>(1 - rule->average_decay);
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) average[i] += weight * (value[i] - average[i]);
  });
}

template <class T>
struct OptimizerKernels {
  inline static const FunctionInstances all{&compute_squared_norms<T>, &apply_optimizer_step<T>,
                                            &update_moving_average<T>};
};
template struct OptimizerKernels<float>;
template struct OptimizerKernels<double>;

}  // namespace tapeformer::cpu
