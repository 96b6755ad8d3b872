// The declarations of the config keys outside of [attention]. Internal to the config code.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/config/schema_key.h"

namespace tapeformer {

// Returns the names of the config tables, in the order in which to_toml() writes the tables. The keys of
// [attention] depend on the attention kind and are not part of the schema.
std::vector<std::string> list_config_tables();

// Returns all keys, grouped by table.
std::vector<SchemaKey> make_config_schema();

// Returns whether earlier versions wrote this key ("table.key") to the config.toml of a run.
bool is_removed_key(const std::string& name);

// Returns the reason why a config does not meet a condition, such as
//   belongs to data sets of images of a known size, and data.dataset is "copy"
std::string describe_unmet_condition(const KeyCondition& condition, const Config& config);

// Returns whether the model has attention layers.
bool uses_attention(const Config& config);

}  // namespace tapeformer
