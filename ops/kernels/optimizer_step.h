// Optimizer arithmetic on lists of arrays. The lists are in host memory on both backends. The StepRule is
// in the memory of the device, because its values change with each step of a captured graph.
#pragma once

#include <cstdint>
#include <limits>

#include "core/backends.h"
#include "core/host_device.h"

namespace tapeformer {

// With g = clamp(scale * gradient) + l2 * parameter, where clamp(x) is x limited to [-max_value, max_value]:
//   first  = momentum * first + gain * g
//   second = beta2 * second + (1 - beta2) g²                      (if there is a second moment)
//   parameter = shrink * parameter - step_size * first / d
// where d = sqrt(second) * second_scale + eps, or 1 if `adaptive` is false.
struct StepRule {
  double momentum = 0, gain = 1, beta2 = 0, l2 = 0, shrink = 1, step_size = 0, second_scale = 1, eps = 0;
  bool adaptive = false;
  double average_decay = 0;  // decay of the weights in update_average()
};

// The scale of a gradient is gradient_scale * min(1, max_norm / (norm + 1e-6)). norm is the norm of all
// gradients times gradient_scale, or of one gradient if `per_tensor` is true.
struct Clipping {
  double gradient_scale = 1;
  double max_norm = 0;  // 0: the norm is not limited
  bool per_tensor = false;
  double max_value = std::numeric_limits<double>::infinity();  // maximum magnitude of elements, after scaling
};

template <class T>
struct ParameterArrays {
  T* parameter;
  const T* gradient;
  T *first, *second;  // second may be null
  int64_t n;
};

// Returns x limited to [-limit, limit]; NaN stays NaN.
template <class T>
TAPEFORMER_HOST_DEVICE T clamp(T x, T limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes squares (count,), the sum of squares of each gradient. The order of additions depends only on
    // the size of the gradient.
    template <class T>
    void compute_squared_norms(Backend, const ParameterArrays<T>* list, int64_t count, double* squares);
    // Computes scales (count,), and the norm (1,) of all gradients times gradient_scale.
    void clip_scales(Backend, const Clipping& clipping, const double* squares, int64_t count, double* scales,
                     double* norm);
    // Applies the equations of StepRule with the scales (count,) of the gradients.
    template <class T> void optimizer_step(Backend, const StepRule* rule, const ParameterArrays<T>* list,
                                           int64_t count, const double* scales, double max_value);
    // Computes average = d * average + (1 - d) * value with d = rule->average_decay.
    template <class T>
    void update_average(Backend, T* average, const T* value, const StepRule* rule, int64_t n);

)

}  // namespace tapeformer
