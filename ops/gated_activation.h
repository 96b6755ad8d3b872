// Gated activations (Shazeer 2020, "GLU Variants Improve Transformer"): SwiGLU, GEGLU and others.
#pragma once

#include "autograd/tape.h"
#include "core/random/dropout.h"
#include "ops/kernels/linear.h"

namespace tapeformer {

// Returns dropout(activation(a) * b) for x = [a, b] (…, 2 dim). The result is (…, dim) in the dtype of x,
// which is float32, float64 or bfloat16. The tape keeps x only. Throws ShapeError if the last dimension is
// odd.
Tensor gated_activation(const Tensor& x, Activation activation, const DropoutMask& dropout = {});

// Computes gated_activation() of contiguous float32, float64 or bfloat16 tensors in decoding, without
// recording and without allocation.
void gated_activation_into(const Tensor& x, Activation activation, const Tensor& out);

}  // namespace tapeformer
