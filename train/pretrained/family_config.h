// The options of a model as the fields of a config.json, in both directions. Internal to train/pretrained.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/pretrained/families/model_family.h"

namespace tapeformer {

// Returns the config of a run of a sequence model with a BPE tokenizer. Throws CheckpointError, which begins
// with `source`, if a field is unknown, missing, of another type or out of range, or if the program does not
// implement its value. Fields whose value is null count as missing.
Config read_family_config(const ModelFamily& family, const ConfigJson& config, const std::string& source);

// Returns the fields of a config.json for a model. `max_length` is the longest text of the training. The
// result describes the model only if find_family_problems() returns nothing.
ConfigJson write_family_config(const ModelFamily& family, const Config& config, int64_t vocabulary,
                               int64_t max_length);

// Settings of a model that a family does not have.
struct FamilyProblems {
  std::vector<std::string> texts = {};  // such as `model.norm = "post", expected "pre"`
  bool is_complete = true;              // false: others are unknown, because the attention has another kind
};
FamilyProblems find_family_problems(const ModelFamily& family, const Config& config);

// Returns the config with numbers in place of 0 in the options that have a default of this kind, such as
// model.width.
Config complete_model_sizes(Config config);

}  // namespace tapeformer
