// The initial weights of a new run, copied from a checkpoint of an earlier run, for fine-tuning.
#pragma once

#include <string>
#include <vector>

#include "models/layers/module.h"
#include "train/config/config.h"

namespace tapeformer {

// Returns the folder of the checkpoint at `path`, a checkpoint folder or a run directory, which stands for
// its latest checkpoint. Throws ConfigError if there is none.
std::string find_initial_checkpoint(const std::string& path);

// Copies the saved tensors of `model` from the checkpoint in config.model.init. Those of the modules
// `new_modules` keep their values, and may have other shapes in the checkpoint. The model may be on any
// device. Logs a warning for each key of the config with which the weights compute another function than in
// their training. Throws ConfigError if there is no such checkpoint, or if the tensors of the checkpoint do
// not match the model. The message lists missing names, unexpected names and mismatched shapes. Throws
// CheckpointError if the checkpoint is damaged, and DivergenceError if a weight is not finite.
void load_initial_weights(const Config& config, const Module& model,
                          const std::vector<std::string>& new_modules = {});

}  // namespace tapeformer
