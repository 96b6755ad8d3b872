// The stack of reversible layers of "Reformer" (Kitaev et al. 2020, section 3). The state of the stack
// consists of two halves, x1 and x2. Before the first layer, both halves are the embedding. Each layer
// computes the new halves y1 and y2:
//   y1 = x1 + dropout(attention(norm1(x2)))
//   y2 = x2 + dropout(feedforward(norm2(y1)))
// A decoder layer has three branches, after each of which the halves swap, so its outputs are (y2, z):
//   y1 = x1 + attention(x2), y2 = x2 + cross_attention(y1), z = y1 + feedforward(y2)
// backward() computes the inputs of each layer from its outputs (autograd/reversible.h), so activation memory
// does not depend on the number of layers. Each layer keeps only its discrete decisions, such as LSH buckets.
//
// As in the code of Kitaev et al., the final norm processes the concatenation of both halves, which has
// 2 * width features.
#pragma once

#include <memory>
#include <vector>

#include "autograd/reversible.h"
#include "models/encoder/encoder_layer.h"

namespace tapeformer {

// Returns one reversible block for each layer. The halves that the blocks process are (batch * length,
// width). For the feed-forward branch, the rows of a half are divided into `chunks` chunks. The layers must
// outlive the blocks. source.states is ReversibleSource::leaf.
std::vector<ReversibleBlock> make_reversible_blocks(const std::vector<std::unique_ptr<EncoderLayer>>& layers,
                                                    int64_t chunks, int64_t length, const AttentionMask& mask,
                                                    const ReplayContext& context,
                                                    const EncodedSource& source = {});

// Runs the layers on a state with the halves x1 and x2, (batch, length, width). Returns both halves of the
// state, (batch, length, 2 width), without the final norm. The source passes the stack unchanged and is kept
// once for all layers.
Tensor run_reversible_stack(const std::vector<std::unique_ptr<EncoderLayer>>& layers, int64_t chunks,
                            const Tensor& x1, const Tensor& x2, const AttentionMask& mask,
                            const ForwardContext& context, const EncodedSource& source = {});

}  // namespace tapeformer
