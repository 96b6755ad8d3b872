// The files of adapters of the package PEFT: adapter_model.safetensors and adapter_config.json.
#pragma once

#include <filesystem>

#include "train/checkpoint/checkpoint.h"
#include "train/config/config.h"

namespace tapeformer {

// Returns the name in a model of the package Transformers of a linear layer: for models with the layers of
// Llama, for example "model.layers.0.self_attn.q_proj" for "layers.0.attention.query_projection"; for other
// models, `layer` itself.
std::string make_transformers_name(const std::string& layer, const Config& config);

// Writes the adapters of a checkpoint into a new folder. Throws CheckpointError if the checkpoint has no
// adapters or is damaged, and FileError if the files cannot be written.
void write_peft_files(const Checkpoint& checkpoint, const Config& config,
                      const std::filesystem::path& folder);

}  // namespace tapeformer
