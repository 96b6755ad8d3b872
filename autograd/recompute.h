// Activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"): a segment of
// the model runs with recording off, keeps only its inputs, and is replayed with recording on in backward().
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

using Segment = std::function<Tensor(const std::vector<Tensor>& inputs)>;

// Returns the inputs of a node that replays a function in backward(). The result contains `inputs`, followed
// by the parameters that require a gradient. If only parameters require a gradient, the node is therefore
// still recorded. backward() also finds the leaves that the replay uses among these inputs.
std::vector<Tensor> make_replay_inputs(std::vector<Tensor> inputs, const std::vector<Tensor>& parameters);

// Computes segment(inputs), and records the call as one node. backward() replays the segment, that is, runs
// it again with recording on. The segment must be a pure function of its inputs and of tensors that do not
// change before backward(). Counter-based random streams give the same numbers in a replay. `parameters` are
// the leaves that the segment uses in addition to `inputs`. The replay adds to the gradients of these
// leaves.
Tensor recompute(const Segment& segment, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& parameters = {});

}  // namespace tapeformer
