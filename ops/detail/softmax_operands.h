// The operands of softmax_attention(), and calls of its kernels with them. Internal to ops.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/softmax_attention.h"

namespace tapeformer {

// The inputs of the kernels, which are kept for the backward pass. q, k and v have a contiguous last
// dimension, and so has `bias` (batch, query_length, heads, key_length), which may be undefined.
struct SoftmaxOperands {
  Tensor q, k, v, key_lengths, key_blocks;
  SoftmaxAttentionShape shape;  // without pointers to data
  Tensor bias = {};
};

// The result of attention, and the log-sum-exp of the scores of each query.
struct SoftmaxResult {
  Tensor out, log_sums;
};

SoftmaxResult run_softmax_forward(const SoftmaxOperands& x);
// Computes the gradients of q, k, v and of the bias, which are tensors of the list `gradients`. Undefined
// gradients are not computed. `result` is the attention to all keys. If x contains only some of the keys, the
// gradient of q contains only the contribution of the keys in x.
Gradients run_softmax_backward(const SoftmaxOperands& x, const SoftmaxResult& result, const Tensor& gradient,
                               Gradients gradients);

}  // namespace tapeformer
