// The arithmetic of an optimizer step, fused: one pass over parameter, gradient and moments.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace tapeformer {

// One parameter with what the step reads and writes; all contiguous, of one shape, dtype and device.
struct ParameterSlot {
  Tensor parameter, gradient, first, second;  // `second` is undefined for SGD
  double gradient_scale = 1;                  // clipping
};

// With g = gradient_scale * gradient + l2 * parameter:
//   first  = momentum * first + gain * g
//   second = beta2 * second + (1 - beta2) g²                      (where there is one)
//   parameter = shrink * parameter - step_size * first / d
// where d = sqrt(second) * second_scale + eps, or 1 when `adaptive` is false.
struct StepRule {
  double momentum = 0, gain = 1, beta2 = 0, l2 = 0, shrink = 1, step_size = 0, second_scale = 1, eps = 0;
  bool adaptive = false;
};

void optimizer_step(const std::vector<ParameterSlot>& slots, const StepRule& rule);

// Sum of squares of each tensor, summed in float64 in an order that does not depend on threads.
std::vector<double> squared_norms(const std::vector<Tensor>& tensors);

// average = decay * average + (1 - decay) * value, elementwise.
void average_into(const Tensor& average, const Tensor& value, double decay);

}  // namespace tapeformer
