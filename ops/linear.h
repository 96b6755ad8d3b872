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

}  // namespace tapeformer
