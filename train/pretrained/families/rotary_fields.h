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
// entries that the type of the positions does not have, and for two objects that differ.
void read_rotary_fields(const ModelFamily& family, ConfigJson& config, const std::string& source);
// Throws CheckpointError if rope_theta or partial_rotary_factor is beside the objects without its alias,
// where transformers ignores it. Families whose fields have no aliases have no such error.
void check_rotary_names(const ModelFamily& family, const ConfigJson& config, const std::string& source);
// Adds the aliases of rope_theta and partial_rotary_factor, the only names that earlier versions of
// transformers read.
void write_rotary_aliases(const ModelFamily& family, ConfigJson& config);
// Adds the objects to the fields of a family.
void write_rotary_fields(const ModelFamily& family, ConfigJson& config);

}  // namespace tapeformer
