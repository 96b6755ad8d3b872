// The metadata of a GGUF file as the fields of a config.json, in both directions. Internal to
// train/pretrained.
#pragma once

#include "train/pretrained/families/model_family.h"
#include "train/pretrained/gguf_file.h"

namespace tapeformer {

// Returns the fields of a config.json that describe the model of a GGUF file. Throws CheckpointError if the
// file has a key of the architecture that the family does not have.
ConfigJson read_gguf_config(const ModelFamily& family, const GgufFile& file);

// Returns the metadata that describe a model. `config` is a result of write_family_config().
std::vector<std::pair<std::string, GgufValue>> write_gguf_config(const ModelFamily& family,
                                                                 const ConfigJson& config);

}  // namespace tapeformer
