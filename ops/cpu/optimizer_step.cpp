#include "ops/kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

}  // namespace

template <class T>
void optimizer_step(const StepRule& rule, double gradient_scale, T* parameter, const T* gradient, T* first,
                    T* second, int64_t n) {
  const T scale = static_cast<T>(gradient_scale), l2 = static_cast<T>(rule.l2);
  const T momentum = static_cast<T>(rule.momentum), gain = static_cast<T>(rule.gain);
  const T beta2 = static_cast<T>(rule.beta2), rest2 = static_cast<T>(1 - rule.beta2);
  const T shrink = static_cast<T>(rule.shrink), step = static_cast<T>(rule.step_size);
  const T second_scale = static_cast<T>(rule.second_scale), eps = static_cast<T>(rule.eps);
  parallel_for(n, kGrain, [=, adaptive = rule.adaptive](int64_t begin, int64_t end) {
    if (second) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const T g = scale * gradient[i] + l2 * parameter[i];
        second[i] = beta2 * second[i] + rest2 * g * g;
      }
    }
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      first[i] = momentum * first[i] + gain * (scale * gradient[i] + l2 * parameter[i]);
    if (adaptive) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i)
        parameter[i] = shrink * parameter[i] - step * first[i] / (std::sqrt(second[i]) * second_scale + eps);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) parameter[i] = shrink * parameter[i] - step * first[i];
    }
  });
}

template <class T>
double squared_norm(const T* x, int64_t n) {
  const int64_t pieces = (n + kGrain - 1) / kGrain;
  std::vector<double> partial(static_cast<size_t>(pieces));
  parallel_for(pieces, 2, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t end = std::min(n, (piece + 1) * kGrain);
      double total = 0;
#pragma omp simd reduction(+ : total)
      for (int64_t i = piece * kGrain; i < end; ++i)
        total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      partial[static_cast<size_t>(piece)] = total;
    }
  });
  double total = 0;
  for (const double value : partial) total += value;
  return total;
}

template <class T>
void average_into(T* average, const T* value, double decay, int64_t n) {
  const T keep = static_cast<T>(decay), take = static_cast<T>(1 - decay);
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) average[i] = keep * average[i] + take * value[i];
  });
}

template void optimizer_step(const StepRule&, double, float*, const float*, float*, float*, int64_t);
template void optimizer_step(const StepRule&, double, double*, const double*, double*, double*, int64_t);
template double squared_norm(const float*, int64_t);
template double squared_norm(const double*, int64_t);
template void average_into(float*, const float*, double, int64_t);
template void average_into(double*, const double*, double, int64_t);

}  // namespace tapeformer::cpu
