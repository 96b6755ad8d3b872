// A linear layer that is followed by a residual sum and a layer norm, for decoding on a CUDA device.
#pragma once

#include "ops/kernels/linear.h"

namespace tapeformer::cuda {

// Arrays of linear_norm_forward(): y (rows, out) = layer_norm(residual + x wᵀ + bias), with x (rows, in),
// w (out, in), residual (rows, out), and bias, norm_weight and norm_bias (out,). `rounded` receives y in
// bfloat16, or is null.
struct LinearNorm {
  LinearShape shape;
  const BFloat16 *x, *w;
  const float *bias, *residual, *norm_weight, *norm_bias;
  double eps;
  float* y;
  BFloat16* rounded;
};

// Computes y in one kernel, with float32 sums. Returns false, without effect, for sizes that a product of
// cuBLAS computes in less time, and for arrays that are not aligned to 16 bytes.
bool linear_norm_forward(Backend, const LinearNorm& layer);

}  // namespace tapeformer::cuda
