// Kernels of an optimizer step on a list of parameters. The list itself is in host memory for both backends.
// The UpdateRule is in device memory, so that a replayed CUDA graph reads the values of the current step.
#pragma once

#include <cstdint>
#include <limits>

#include "core/base/backends.h"
#include "core/base/host_device.h"

namespace tapeformer {

// Coefficients of one optimizer step, which computes for each element:
//   g = clamp(scale * gradient, max_value) + l2 * parameter
//   first_moment = momentum * first_moment + gain * g
//   second_moment = beta2 * second_moment + (1 - beta2) g²        (if the optimizer has a second moment)
//   parameter = shrink * parameter - step_size * first_moment / d
// d is sqrt(second_moment) * second_scale + eps, or 1 if `adaptive` is false. `scale` and max_value come from
// Clipping. For a parameter without weight decay, l2 is 0 and `shrink` is 1.
struct UpdateRule {
  double momentum = 0, gain = 1, beta2 = 0, l2 = 0, shrink = 1, step_size = 0, second_scale = 1, eps = 0;
  bool adaptive = false;
  double average_decay = 0;  // decay of the moving average of the weights in update_moving_average()
};

// Options for gradient clipping. Each gradient is multiplied by
// gradient_scale * min(1, max_norm / (norm + 1e-6)). If per_tensor is false, `norm` is |gradient_scale| times
// the norm of all gradients together. If per_tensor is true, `norm` is |gradient_scale| times the norm of the
// gradient that is multiplied.
struct Clipping {
  double gradient_scale = 1;
  double max_norm = 0;  // 0: the norm is not limited
  bool per_tensor = false;
  // Each element of the multiplied gradients is limited to [-max_value, max_value].
  double max_value = std::numeric_limits<double>::infinity();
};

// The arrays of one parameter, with n elements each.
template <class T>
struct ParameterArrays {
  T* parameter;
  const T* gradient;
  T *first_moment, *second_moment;  // second_moment is null for optimizers without a second moment
  int64_t n;
  bool decays = true;  // whether weight decay applies to the parameter
};

// Returns x limited to [-limit, limit]; NaN stays NaN.
template <class T>
TAPEFORMER_HOST_DEVICE T clamp(T x, T limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes squares (count,), the sum of squares of the gradient of each parameter. The order of the
    // additions depends only on the size of the gradient.
    template <class T>
    void compute_squared_norms(Backend, const ParameterArrays<T>* parameters, int64_t count, double* squares);
    // Computes scales (count,), the multipliers of the gradients by the formula of Clipping. `squares`
    // (count,) is the result of compute_squared_norms(). Also computes norm (1,), the norm of all gradients
    // times |gradient_scale|.
    void compute_clip_scales(Backend, const Clipping& clipping, const double* squares, int64_t count,
                             double* scales, double* norm);
    // Updates the moments and the parameters by the equations of UpdateRule. `scales` (count,) is the result
    // of compute_clip_scales().
    template <class T>
    void apply_optimizer_step(Backend, const UpdateRule* rule, const ParameterArrays<T>* parameters,
                              int64_t count, const double* scales, double max_value);
    // Computes average += (1 - d) * (value - average) for n elements, where d = rule->average_decay.
    template <class T>
    void update_moving_average(Backend, T* average, const T* value, const UpdateRule* rule, int64_t n);

)

}  // namespace tapeformer
