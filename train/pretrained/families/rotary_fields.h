// The fields of rotary positions in a config.json, in both directions. A config.json has them in the object
// "rope_parameters", or in "rope_scaling" and beside it in earlier versions of transformers. Families have
// them as plain fields: rope_theta, partial_rotary_factor, and the fields of make_rotary_scaling_fields().
// Internal to train/pretrained.
#pragma once

#include <string>
#include <vector>

#include "train/pretrained/families/model_family.h"

namespace tapeformer {

// Returns the fields of scaled rotary positions: rope_type, rope_factor, rope_length, rope_slow, rope_fast
// and rope_amplitude.
std::vector<FamilyField> make_rotary_scaling_fields();

// Moves the entries of the objects to the fields. Throws CheckpointError, which begins with `source`, for
// entries that the type of the positions does not have.
void read_rotary_fields(const ModelFamily& family, ConfigJson& config, const std::string& source);
// Adds the objects to the fields of a family.
void write_rotary_fields(const ModelFamily& family, ConfigJson& config);

}  // namespace tapeformer
