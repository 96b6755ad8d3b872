// Optimizer arithmetic on arrays of n elements.
#pragma once

#include <cstdint>

namespace tapeformer {

// With g = gradient_scale * gradient + l2 * parameter:
//   first  = momentum * first + gain * g
//   second = beta2 * second + (1 - beta2) g²                      (where there is one)
//   parameter = shrink * parameter - step_size * first / d
// where d = sqrt(second) * second_scale + eps, or 1 when `adaptive` is false.
struct StepRule {
  double momentum = 0, gain = 1, beta2 = 0, l2 = 0, shrink = 1, step_size = 0, second_scale = 1, eps = 0;
  bool adaptive = false;
};

namespace cpu {

// `gradient_scale` is that of StepRule's equations; `second` may be null.
template <class T>
void optimizer_step(const StepRule& rule, double gradient_scale, T* parameter, const T* gradient, T* first,
                    T* second, int64_t n);
template <class T>
double squared_norm(const T* x, int64_t n);
template <class T>
void average_into(T* average, const T* value, double decay, int64_t n);

}  // namespace cpu
}  // namespace tapeformer
