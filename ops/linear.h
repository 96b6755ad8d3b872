// The affine map, fused with its activation and dropout.
#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/dropout.h"
#include "ops/kernels/linear.h"

namespace tapeformer {

// dropout(activation(x weightᵀ + bias)).
// x (…, in), weight (out, in), bias (out,) or undefined; result (…, out), of the dtype of x. On a device x
// may be bfloat16 with weights in float32; `result` then asks for bfloat16 or float32. Errors: ShapeError
// naming the shapes or dtypes.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              Activation activation = Activation::none, const DropoutMask& dropout = {},
              std::optional<DType> result = {});

// The dtype in which x enters products: bfloat16 where its device is set to that precision
// (core/cuda/precision.h), else its own.
DType factor_dtype(const Tensor& x);
// x in that dtype. Layers whose products share an input, or follow each other, so round once and keep half
// the bytes.
Tensor as_factor(const Tensor& x);

// x weightᵀ + bias for its gradient alone: recorded like linear(), but not computed; the result is NaN. For
// replays of a function whose result is known.
Tensor linear_tape(const Tensor& x, const Tensor& weight, const Tensor& bias, DType result);

}  // namespace tapeformer
