// Softmax attention to regularly spaced keys, computed by dense attention within subsequences. Internal to
// ops.
#pragma once

#include "ops/kernels/softmax_attention.h"
#include "ops/softmax_attention_options.h"

namespace tapeformer {

// The type of softmax_attention().
using SoftmaxAttentionOp = Tensor (*)(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const SoftmaxAttentionOptions& options);

// Returns softmax_attention(q, k, v, options) if the pattern of the options has a faster form, and otherwise
// an undefined tensor. q, k and v have a contiguous last dimension. `shape` describes them and the options.
// `attend` is softmax_attention(), which computes the subsequences.
Tensor try_strided_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const SoftmaxAttentionOptions& options, const SoftmaxAttentionShape& shape,
                             SoftmaxAttentionOp attend);

}  // namespace tapeformer
