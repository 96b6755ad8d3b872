// Checks of fields of a config.json. Internal to train/pretrained.
#pragma once

#include <string>

#include "train/pretrained/families/model_family.h"

namespace tapeformer {

// Throws CheckpointError, which begins with `source`: the field `key` has another value than `expected`.
[[noreturn]] void refuse_field(const std::string& source, const std::string& key, const std::string& expected,
                               const ConfigJson& value);
// Returns a value for a message: a list and an object are described, and a long text is cut.
std::string describe_json(const ConfigJson& value);
// Returns whether the field is missing or null.
bool is_missing(const ConfigJson& config, const std::string& key);
// Returns whether the value is an integer that fits in int64_t.
bool is_integer(const ConfigJson& value);
// Return the value of a field. Throw CheckpointError, which begins with `source`, if the field is missing, of
// another type, or less than `min`.
int64_t get_integer_field(const ConfigJson& config, const std::string& key, int64_t min,
                          const std::string& source);
// With a fallback for a field that is missing or null.
int64_t get_integer_field(const ConfigJson& config, const std::string& key, int64_t min, int64_t fallback,
                          const std::string& source);
ConfigJson get_optional_field(const ConfigJson& config, const std::string& key, ConfigJson fallback);
double get_number_field(const ConfigJson& config, const std::string& key, const std::string& source);
std::string get_text_field(const ConfigJson& config, const std::string& key, const std::string& source);

}  // namespace tapeformer
