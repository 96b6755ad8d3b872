// Activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"): run a part of
// the model with recording off, keep its inputs only, and run it again with recording on when backward()
// arrives there.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

using Segment = std::function<Tensor(const std::vector<Tensor>& inputs)>;

// The inputs of a node that replays: `inputs` and, so that it is recorded when none of them requires a
// gradient, one parameter that does.
std::vector<Tensor> replay_sources(std::vector<Tensor> inputs, const std::vector<Tensor>& parameters);

// segment(inputs), recorded as one node. The segment must be a pure function of its inputs and of tensors
// that do not change before backward(): random numbers come from counter-based streams, so a replay draws
// them again. `parameters` are the leaves that the segment uses besides its inputs; their gradients are
// accumulated during the replay.
Tensor recompute(const Segment& segment, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& parameters = {});

}  // namespace tapeformer
