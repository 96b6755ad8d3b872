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

// A rule where kernels of the device read it, uint8: what is recorded as a graph goes by what is written
// there before each launch.
Tensor rule_on(Device device, const StepRule& rule);
void set_rule(const Tensor& memory, const StepRule& rule);

// By the equations of StepRule and Clipping (ops/kernels/optimizer_step.h); all slots and the rule have one
// device, the slots one dtype. Returns the norm of all gradients times clipping.gradient_scale, before
// clipping: a float64 scalar on that device, for which nothing has waited.
Tensor optimizer_step(const std::vector<ParameterSlot>& slots, const Tensor& rule,
                      const Clipping& clipping = {});

// Returns the sum of squares of each tensor, (count,) float64 on their device, without waiting for the
// device. A sum is finite if and only if all elements are finite (float64: and below 1e150). All tensors must
// have the same dtype, float32 or float64, and the same device.
Tensor squared_norms(const std::vector<Tensor>& tensors);
// Writes the sums of squared_norms into `squares`, (count,) float64.
void squared_norms_into(const std::vector<Tensor>& tensors, const Tensor& squares);

// average = decay * average + (1 - decay) * value, elementwise, with the average_decay of a rule_on the
// device.
void average_into(const Tensor& average, const Tensor& value, const Tensor& rule);

}  // namespace tapeformer
