// The results of a forward pass of an attention op, for programs with another automatic differentiation.
//
// The functions OP_forward_into() and OP_backward_into() of the attention ops are the passes of an op as
// separate functions, which do not use the tape: the caller keeps the inputs and the results of a forward
// pass for the backward pass. Equations, shapes, dtypes, options and errors are those of the op.
//
// Results and gradients are tensors of the caller. Results, and gradients of LSH attention, are contiguous.
// The last dimension of other gradients is contiguous. The functions throw ShapeError for other shapes and
// dtypes. If a gradient is undefined, it is not computed; LSH attention computes both gradients.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

struct AttentionResult {
  Tensor out;  // (batch, query_length, heads, value_dim), dtype of q
  // The log-sum-exps of the scores, or the inverse denominators of linear attention: (batch, heads,
  // query_length) in the compute dtype, which is float32 for bfloat16. LSH attention has (batch, heads,
  // rounds, length) with Combine::mean, where sequences of at most chunk_length positions have one round,
  // and (batch, heads, 1, length) with Combine::logsumexp.
  Tensor statistics;
};

}  // namespace tapeformer
