// Activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"). The forward
// pass of a segment keeps only the inputs of the segment, and backward() repeats the forward pass.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

using Segment = std::function<Tensor(const std::vector<Tensor>& inputs)>;

// Returns the inputs of a node that replays a function in backward(): `inputs`, followed by the parameters
// that require a gradient. With the parameters as inputs, the node is recorded even if no other input
// requires a gradient, and backward() calls BackwardOptions::on_complete for the parameters.
std::vector<Tensor> make_replay_inputs(std::vector<Tensor> inputs, const std::vector<Tensor>& parameters);

// Computes segment(inputs), and records the call as one node. backward() replays the segment, that is, runs
// it again with recording on. The segment must be a pure function of its inputs and of tensors that do not
// change before backward(). Counter-based random streams give the same numbers in a replay. `parameters` are
// the leaves that the segment uses in addition to `inputs`. The replay accumulates the gradients of these
// leaves.
Tensor recompute(const Segment& segment, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& parameters = {});

}  // namespace tapeformer
