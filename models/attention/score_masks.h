// Masks for attention kinds that use matmul() instead of a fused attention op.
#pragma once

#include <string>

#include "models/attention/attention.h"

namespace tapeformer {

// Returns a (length, length) float32 tensor on the CPU: 0 if key j <= query i, -inf otherwise.
Tensor make_causal_score_mask(int64_t length);
// Returns a (batch, length) tensor with the dtype and the device of `like`: 0 at positions below lengths[b],
// -inf at the other positions. `lengths` is (batch,) int64 and is copied to the CPU.
Tensor make_length_score_mask(const Tensor& lengths, int64_t length, const Tensor& like);
// Returns x (batch, length, heads, dim) with zeros at the positions that mask.key_lengths masks. Copies the
// lengths to the CPU.
Tensor zero_masked_rows(const Tensor& x, const AttentionMask& mask);

// Returns a dropout mask for the attention weights of the layer `name`, with dropout probability p. The
// weights are (batch, heads, q_length, k_length) for q (batch, q_length, heads, …) and k (batch, k_length,
// …).
DropoutMask make_weight_dropout_mask(const Tensor& q, const Tensor& k, double p,
                                     const ForwardContext& context, const std::string& name);

}  // namespace tapeformer
