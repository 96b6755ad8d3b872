// The arithmetic of an optimizer step, fused: one pass over parameter, gradient and moments.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "ops/kernels/optimizer_step.h"

namespace tapeformer {

// One parameter with what the step reads and writes; all contiguous, of one shape, dtype and device.
struct ParameterSlot {
  Tensor parameter, gradient, first, second;  // `second` is undefined for SGD
  double gradient_scale = 1;                  // clipping
};

// By the equations of StepRule (ops/kernels/optimizer_step.h).
void optimizer_step(const std::vector<ParameterSlot>& slots, const StepRule& rule);

// Sum of squares of each tensor, summed in float64 in an order that does not depend on threads.
std::vector<double> squared_norms(const std::vector<Tensor>& tensors);

// average = decay * average + (1 - decay) * value, elementwise.
void average_into(const Tensor& average, const Tensor& value, double decay);

}  // namespace tapeformer
