// The reversible encoder stack of "Reformer" (Kitaev et al. 2020, section 3): both halves of the state start
// as the embedding, and layer i computes
//   y1 = x1 + dropout(attention(norm1 x2)),   y2 = x2 + dropout(feedforward(norm2 y1)).
// Its activations do not grow with the depth: backward() computes each layer's inputs from its outputs
// (autograd/reversible.h). What stays per layer are the decisions of attention kinds that make some.
//
// As in the authors' code, the output norm and what follows it read both halves, 2 width features.
#pragma once

#include <memory>
#include <vector>

#include "autograd/reversible.h"
#include "models/encoder.h"

namespace tapeformer {

// The layers as blocks on rows (batch * length, width). The feed-forward branch runs in `chunks` pieces,
// forward and backward. The blocks borrow the layers.
std::vector<ReversibleBlock> reversible_blocks(const std::vector<std::unique_ptr<EncoderLayer>>& layers,
                                               int64_t chunks, int64_t batch, const AttentionMask& mask,
                                               const ReplayContext& context);

// x (batch, length, width); result (batch, length, 2 width): the halves side by side, not normalised.
Tensor reversible_stack(const std::vector<std::unique_ptr<EncoderLayer>>& layers, int64_t chunks,
                        const Tensor& x, const AttentionMask& mask, const ForwardContext& context);

}  // namespace tapeformer
