// Softmax attention to regularly spaced keys, computed by dense attention within subsequences. Internal to
// ops.
#pragma once

#include "ops/kernels/softmax_attention.h"
#include "ops/softmax_attention.h"

namespace tapeformer {

// Returns softmax_attention(q, k, v, options) if the pattern of the options has a faster form, and otherwise
// an undefined tensor. q, k and v have a contiguous last dimension. `shape` describes them and the options.
Tensor try_strided_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const SoftmaxAttentionOptions& options, const SoftmaxAttentionShape& shape);

}  // namespace tapeformer
