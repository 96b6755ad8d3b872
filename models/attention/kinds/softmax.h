// Options of softmax attention that several attention kinds share.
#pragma once

#include <string>

#include "models/attention/attention.h"
#include "ops/softmax_attention.h"

namespace tapeformer {

// Returns the options of softmax_attention(q, k, …) for a forward pass of the layer `name`. Sets the masks
// from `mask`, and dropout from make_weight_dropout_mask() (models/attention/score_masks.h).
SoftmaxAttentionOptions make_softmax_attention_options(const Tensor& q, const Tensor& k,
                                                       const AttentionMask& mask, double dropout,
                                                       const ForwardContext& context,
                                                       const std::string& name);

}  // namespace tapeformer
