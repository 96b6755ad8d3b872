// The list of families. Internal to train.
#pragma once

#include <string>
#include <vector>

#include "train/pretrained/families/model_family.h"

namespace tapeformer {

const std::vector<ModelFamily>& list_model_families();

// Returns the family with the name in "model_type", or with the architecture of a GGUF file. Throws
// CheckpointError, which begins with `source` and lists the families, if there is none.
const ModelFamily& find_model_family(const std::string& name, const std::string& source);
const ModelFamily& find_gguf_family(const std::string& architecture, const std::string& source);

// Fields that config.json of every family can have and that do not change what a model computes.
const std::vector<std::string>& list_ignored_fields();

}  // namespace tapeformer
