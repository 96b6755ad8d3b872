// Checkpoints of runs with adapters ([lora] in a config). model.safetensors of such a checkpoint contains
// only the adapters, and state.json refers to the base, the checkpoint of model.init whose weights the
// adapters extend.
#pragma once

#include <filesystem>
#include <string>

#include "models/layers/module.h"
#include "train/checkpoint/checkpoint.h"
#include "train/config/config.h"

namespace tapeformer {

// Returns the tensors that a checkpoint of the run stores: those of the adapters, or all saved tensors in a
// run without adapters.
NamedTensors list_stored_tensors(const Config& config, const Module& model);

// Returns the reference to the checkpoint in config.model.init, which a run in the folder `run_dir` stores.
// Throws ConfigError if there is no such checkpoint.
BaseReference make_base_reference(const Config& config, const std::filesystem::path& run_dir);

// Returns the base of a checkpoint with adapters, in the folder of the reference or, if there is none, in the
// folder with the same path relative to the run directory. Throws CheckpointError if the base is missing, or
// if its weights are not those of the reference.
Checkpoint find_base(const Checkpoint& checkpoint, const TrainingState& state);

// Copies the weights of a checkpoint, and of its base if it has one, into the saved tensors of the model.
// Throws CheckpointError if the tensors do not match, and DivergenceError if a weight is not finite.
void load_weights(const Checkpoint& checkpoint, const TrainingState& state, const Config& config,
                  const Module& model);

}  // namespace tapeformer
