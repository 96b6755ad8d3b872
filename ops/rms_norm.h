// Norms without mean: RMS norm (Zhang and Sennrich 2019), optionally gated, and L2 norm. Rows are the last
// dimension of a tensor (…, dim).
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/gate_activation.h"

namespace tapeformer {

struct RmsNormOptions {
  Tensor gate = {};  // (…, dim) in the shape and dtype of x. Undefined: no gate.
  GateActivation gate_activation = GateActivation::silu;
  double eps = 1e-5;
};

// Computes x / sqrt(mean(x²) + eps) * weight * gate_activation(gate). `weight` is (dim,) in the compute dtype
// of x, or undefined, which means 1.
//
// x is float32, float64 or bfloat16. Results of bfloat16 inputs are computed in float32 and rounded once. x
// and the gate are copied only if the last dimension is not contiguous, or if their rows need more than two
// strides; a slice of (batch, length, 3, heads, dim) needs two. The tape keeps the inputs only. Throws
// ShapeError for mismatched shapes and dtypes.
Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options = {});
// Computes scale * x / sqrt(Σ x² + eps), with the dtypes and strides of rms_norm().
Tensor l2_norm(const Tensor& x, double scale = 1, double eps = 1e-6);

// rms_norm_into() and l2_norm_in_place() compute the same functions of float32 and float64 tensors in
// decoding, without recording and without allocation. `out` has the shape of x and is contiguous. It may be
// bfloat16 if x is float32. No tensor is copied: the rows of the tensors must have at most two strides.
void rms_norm_into(const Tensor& x, const Tensor& weight, const RmsNormOptions& options, const Tensor& out);
void l2_norm_in_place(const Tensor& x, double scale = 1, double eps = 1e-6);

}  // namespace tapeformer
