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

// Copies the saved tensors of `model` from the checkpoint in config.model.init. The tensors of the modules
// `new_modules`, and the tensors that config.model.init_new matches, keep their values. They may be missing
// or have other shapes in the checkpoint. The tensors of the checkpoint that config.model.init_unused matches
// may be missing in the model. Adapters keep their values. Logs how many tensors are copied, and which are
// new and unused. The model may be on any device. Logs a warning for each key of the config with which the
// weights compute another function than in their training. Throws ConfigError if there is no such checkpoint,
// or if the tensors of the checkpoint do not match the model. The message lists missing names, unexpected
// names and mismatched shapes, and the settings that permit them. Also throws ConfigError if a pattern
// matches nothing. Throws CheckpointError if the checkpoint is damaged, and DivergenceError if a weight is
// not finite.
void load_initial_weights(const Config& config, const Module& model,
                          const std::vector<std::string>& new_modules = {});

}  // namespace tapeformer
