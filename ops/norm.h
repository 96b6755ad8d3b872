// Layer normalisation (Ba et al. 2016), also fused with a preceding residual sum and dropout.
#pragma once

#include "autograd/tape.h"
#include "core/random/dropout.h"

namespace tapeformer {

inline constexpr double kLayerNormEps = 1e-5;

// Returns (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension of x (…, dim). The
// variance is the mean squared deviation. weight and bias are (dim,). Throws ShapeError for mismatched
// shapes and dtypes, and for bfloat16.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = kLayerNormEps);
// Returns layer_norm(x + dropout(branch)), the end of a post-norm block. x and branch are (…, dim). The
// branch may be bfloat16 if x is float32.
Tensor residual_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                           const DropoutMask& dropout = {}, double eps = kLayerNormEps);

// The result of a layer norm, and the same result as an operand of matrix products. `result` has the dtype of
// the input, and `operand` has the dtype get_operand_dtype(result) (ops/linear.h). If the two dtypes are
// equal, both members are the same tensor.
struct LayerNormResult {
  Tensor result, operand;
};
// layer_norm_with_operand() and residual_layer_norm_with_operand() return the results of layer_norm() and
// residual_layer_norm() as a LayerNormResult. One kernel writes both `result` and `operand`.
LayerNormResult layer_norm_with_operand(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                        double eps = kLayerNormEps);
LayerNormResult residual_layer_norm_with_operand(const Tensor& x, const Tensor& branch, const Tensor& weight,
                                                 const Tensor& bias, const DropoutMask& dropout = {},
                                                 double eps = kLayerNormEps);

}  // namespace tapeformer
