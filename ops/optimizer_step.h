// The arithmetic of an optimizer step, fused into one pass over parameter, gradient and moments.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "ops/kernels/optimizer_step.h"

namespace tapeformer {

// The tensors of one parameter, which are contiguous and have the same shape, dtype and device.
struct ParameterTensors {
  Tensor parameter, gradient, first_moment, second_moment;  // `second_moment` is undefined for SGD
  bool decays = true;                                       // whether weight decay applies to the parameter
};

// copy_rule_to_device() returns the bytes of the rule as a uint8 tensor on `device`. overwrite_rule()
// replaces the rule in such a tensor. If a CUDA graph reads the tensor, overwrite_rule() must be called
// before each launch of the graph.
Tensor copy_rule_to_device(Device device, const UpdateRule& rule);
void overwrite_rule(const Tensor& memory, const UpdateRule& rule);

// Updates the parameter and the moments of each parameter by the equations of UpdateRule and Clipping
// (ops/kernels/optimizer_step.h). `rule` is a result of copy_rule_to_device(). All tensors are on one device,
// and the tensors of all parameters have the same dtype. Returns the norm of all gradients before clipping,
// multiplied by |clipping.gradient_scale|, as a float64 scalar on the device. Does not wait for the device.
Tensor apply_optimizer_step(const std::vector<ParameterTensors>& parameters, const Tensor& rule,
                            const Clipping& clipping = {});

struct GradientScales {
  Tensor scales;  // (count,) float64: the factors by which Clipping multiplies the gradients
  Tensor norm;    // norm of all gradients as apply_optimizer_step() returns it
};
// Computes the norm of the gradients and the scale of each gradient.
GradientScales compute_gradient_scales(const std::vector<Tensor>& gradients, const Clipping& clipping);

// Returns the sum of squares of each tensor, (count,) float64 on the device of the tensors. Does not wait for
// the device. The sum for a float32 tensor is finite if and only if all elements are finite. The sum for a
// float64 tensor may overflow if elements exceed 1e150. The tensors must have the same dtype, float32 or
// float64, and the same device.
Tensor compute_squared_norms(const std::vector<Tensor>& tensors);
// Writes the result of compute_squared_norms() into `squares`, (count,) float64.
void compute_squared_norms_into(const std::vector<Tensor>& tensors, const Tensor& squares);

// Computes average += (1 - decay) * (value - average), elementwise. Elements of `average` that equal the
// corresponding elements of `value` do not change. `rule` is a result of copy_rule_to_device(), and `decay`
// is the member average_decay of `rule`.
void update_moving_average(const Tensor& average, const Tensor& value, const Tensor& rule);

}  // namespace tapeformer
