// Layer normalisation (Ba et al. 2016), alone and fused with the residual sum and dropout in front of it.
#pragma once

#include "autograd/tape.h"
#include "core/dropout.h"

namespace tapeformer {

inline constexpr double kLayerNormEps = 1e-5;

// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, variance without Bessel's
// correction. x (…, dim), weight and bias (dim,). Errors: ShapeError naming the shapes.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = kLayerNormEps);
// layer_norm(x + dropout(branch)): the end of a post-norm block. x and branch (…, dim); on a device the
// branch may be bfloat16 where x is float32.
Tensor residual_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                           const DropoutMask& dropout = {}, double eps = kLayerNormEps);

}  // namespace tapeformer
