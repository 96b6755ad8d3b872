// Masks that the implementations of attention kinds share: masks of scores, of keys and values, and of
// attention weights.
#pragma once

#include <string>

#include "models/attention/attention.h"

namespace tapeformer {

// Returns the causal mask of the scores, (length, length) float32 on the CPU. Element (i, j) is 0 if j <= i,
// and -inf otherwise.
Tensor make_causal_score_mask(int64_t length);
// Returns a mask of the scores, (batch, length), with the dtype and the device of `like`. In row b, the first
// lengths[b] elements are 0, and the other elements are -inf. `lengths` is (batch,) int64 and is copied to
// the CPU.
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
