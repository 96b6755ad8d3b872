// Options of softmax attention that several attention kinds share.
#pragma once

#include <string>

#include "models/attention/attention.h"
#include "ops/softmax_attention.h"

namespace tapeformer {

// Returns the options of softmax_attention() for a forward pass: the masks, and dropout of attention weights
// with the random stream of the layer `name`. The weights are (batch, heads, q_length, k_length).
SoftmaxAttentionOptions softmax_options(const Tensor& q, const Tensor& k, const AttentionMask& mask,
                                        double dropout, const ForwardContext& context,
                                        const std::string& name);

}  // namespace tapeformer
