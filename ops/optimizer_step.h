// The arithmetic of an optimizer step, fused: one pass over parameter, gradient and moments.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "ops/kernels/optimizer_step.h"

namespace tapeformer {

// One parameter with what the step reads and writes; all contiguous, of one shape, dtype and device.
struct ParameterSlot {
  Tensor parameter, gradient, first, second;  // `second` is undefined for SGD
};

// By the equations of StepRule and Clipping (ops/kernels/optimizer_step.h); all slots have one dtype and
// device. Returns the norm of all gradients times clipping.gradient_scale, before clipping: a float64 scalar
// on that device, for which nothing has waited.
Tensor optimizer_step(const std::vector<ParameterSlot>& slots, const StepRule& rule,
                      const Clipping& clipping = {});

// average = decay * average + (1 - decay) * value, elementwise.
void average_into(const Tensor& average, const Tensor& value, double decay);

}  // namespace tapeformer
