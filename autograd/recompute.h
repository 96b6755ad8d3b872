// Activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"): a segment of
// the model runs with recording off, keeps only its inputs, and is replayed with recording on in backward().
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

using Segment = std::function<Tensor(const std::vector<Tensor>& inputs)>;

// Returns the inputs of a node that replays: `inputs`, and the parameters that require a gradient. The node
// is therefore recorded even if no input requires a gradient, and backward() knows the leaves that it uses.
std::vector<Tensor> replay_sources(std::vector<Tensor> inputs, const std::vector<Tensor>& parameters);

// Computes segment(inputs), recorded as one node. The segment must be a pure function of its inputs and of
// tensors that do not change before backward(). Counter-based random streams give the same numbers in a
// replay. `parameters` are the other leaves of the segment; their gradients are accumulated during the
// replay.
Tensor recompute(const Segment& segment, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& parameters = {});

}  // namespace tapeformer
