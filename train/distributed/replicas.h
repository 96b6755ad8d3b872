// Equal weights on all processes of a run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/distributed/communicator.h"

namespace tapeformer {

using NamedReplicas = std::vector<std::pair<std::string, Tensor>>;

// Replaces the tensors on all processes by those of process 0.
void broadcast_tensors(Communicator& processes, const NamedReplicas& tensors);

// Throws std::runtime_error on all processes if a tensor of a process differs in any bit from that of process
// 0. The message names the step, the process and the first tensor that differs.
void require_equal_tensors(Communicator& processes, const NamedReplicas& tensors, int64_t step);

}  // namespace tapeformer
