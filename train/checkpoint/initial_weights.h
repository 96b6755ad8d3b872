// The initial weights of a new run, copied from a checkpoint of an earlier run, for fine-tuning.
#pragma once

#include <string>

#include "models/layers/module.h"

namespace tapeformer {

// Copies all saved tensors of `model` from a checkpoint. `path` is a checkpoint folder or a run directory. If
// `path` is a run directory, the function uses its latest checkpoint. The model may be on any device. Throws
// ConfigError if there is no such checkpoint, or if the tensors of the checkpoint do not match the model. The
// message lists missing names, unexpected names and mismatched shapes. Throws CheckpointError if the
// checkpoint is damaged, and DivergenceError if a weight is not finite.
void load_initial_weights(const std::string& path, const Module& model);

}  // namespace tapeformer
