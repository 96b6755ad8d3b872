// Fused kernel of a linear layer, the sum with a residual, and a layer norm, for decoding on a CUDA device.
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

// Computes layer.y in one launch, with float32 sums, and returns true. If a matrix product of cuBLAS and
// separate kernels are faster for these sizes, or if an array is not aligned to 16 bytes, computes nothing
// and returns false.
bool try_linear_norm_forward(Backend, const LinearNormArguments& layer);

}  // namespace tapeformer::cuda
