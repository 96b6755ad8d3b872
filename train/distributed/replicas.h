// Functions that copy weights to all processes of a run, and check that the weights are equal on all
// processes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/distributed/communicator.h"

namespace tapeformer {

using NamedReplicas = std::vector<std::pair<std::string, Tensor>>;

// Copies the tensors of process 0 to all processes.
void broadcast_tensors(Communicator& processes, const NamedReplicas& tensors);

// Throws std::runtime_error on all processes if the 64-bit hash of a tensor differs between process 0 and
// another process. The message names the step, the process and the first tensor that differs.
void require_equal_tensors(Communicator& processes, const NamedReplicas& tensors, int64_t step);

}  // namespace tapeformer
