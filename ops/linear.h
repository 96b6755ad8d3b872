// The affine map, fused with its activation and dropout.
#pragma once

#include "autograd/tape.h"
#include "core/dropout.h"
#include "ops/kernels/linear.h"

namespace tapeformer {

// dropout(activation(x weightᵀ + bias)).
// x (…, in), weight (out, in), bias (out,) or undefined; result (…, out). Errors: ShapeError naming the
// shapes.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              Activation activation = Activation::none, const DropoutMask& dropout = {});

// x weightᵀ + bias for its gradient alone: recorded like linear(), but not computed; the result is NaN. For
// replays of a function whose result is known.
Tensor linear_tape(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace tapeformer
