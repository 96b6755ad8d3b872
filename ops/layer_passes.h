// The passes of short_conv() and rms_norm() as separate functions, for programs with another automatic
// differentiation; see ops/attention_result.h. Results and gradients are contiguous tensors of the caller.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct RmsNormOptions;    // ops/rms_norm.h
struct ShortConvOptions;  // ops/short_conv.h

// `out` has the shape and dtype of x. The gradients of x, weight and history are the elements of `gradients`.
void short_conv_forward_into(const Tensor& x, const Tensor& weight, const ShortConvOptions& options,
                             const Tensor& out);
void short_conv_backward_into(const Tensor& x, const Tensor& weight, const ShortConvOptions& options,
                              const Tensor& gradient, const Gradients& gradients);

// `out` has the shape and dtype of x. The gradients of x, weight and gate are the elements of `gradients`.
void rms_norm_forward_into(const Tensor& x, const Tensor& weight, const RmsNormOptions& options,
                           const Tensor& out);
void rms_norm_backward_into(const Tensor& x, const Tensor& weight, const RmsNormOptions& options,
                            const Tensor& gradient, const Gradients& gradients);

}  // namespace tapeformer
