// Rotary positions in GGUF files as the fields of a config.json, in both directions. Internal to
// train/pretrained.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/pretrained/families/model_family.h"
#include "train/pretrained/gguf_file.h"

namespace tapeformer {

// Returns whether the key, after the architecture, is one that read_gguf_rotary() reads.
bool is_gguf_rotary_key(const std::string& key);

// Sets partial_rotary_factor and rope_scaling from the metadata and from the tensor rope_freqs.weight, which
// has the divisors of the angles of Llama 3. `config` has the other fields. Throws CheckpointError for
// scalings that the program does not have.
void read_gguf_rotary(const ModelFamily& family, const GgufFile& file, ConfigJson& config);

// Returns the metadata for a result of write_family_config(). Throws ConfigError if the format has none for
// the rotary positions.
std::vector<std::pair<std::string, GgufValue>> write_gguf_rotary(const ModelFamily& family,
                                                                 const ConfigJson& config);

// Returns the values of the tensor rope_freqs.weight, or an undefined tensor if the model needs none.
Tensor make_gguf_rotary_divisors(const ConfigJson& config);

}  // namespace tapeformer
