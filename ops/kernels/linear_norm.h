// Fused kernel for decoding on a CUDA device. The kernel computes a linear layer, adds a residual, and
// applies layer normalisation.
#pragma once

#include "ops/kernels/linear.h"

namespace tapeformer::cuda {

// Arguments of try_linear_norm_forward(), which computes y = layer_norm(residual + x wᵀ + bias). x is (rows,
// in), w is (out, in), residual and y are (rows, out), and bias, norm_weight and norm_bias are (out,). If
// `rounded_y` (rows, out) is not null, the kernel also writes y in bfloat16 to `rounded_y`.
struct LinearNormArguments {
  LinearShape shape;
  const BFloat16 *x, *w;
  const float *bias, *residual, *norm_weight, *norm_bias;
  double eps;
  float* y;
  BFloat16* rounded_y;
};

// Computes layer.y in one kernel launch, with float32 sums, and returns true. Computes nothing and returns
// false if an array is not aligned to 16 bytes, or if a cuBLAS product followed by separate kernels is faster
// for layer.shape.
bool try_linear_norm_forward(Backend, const LinearNormArguments& layer);

}  // namespace tapeformer::cuda
