// Conversions between three forms of config values: a parsed value (RawValue), a value of the type of an
// OptionSpec (OptionValue), and TOML text. Internal to train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/options/options.h"

namespace tapeformer {

// A parsed value, before its type is checked. `description` describes the value in errors, for example
// `string "abc"`.
struct RawValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<RawValue>> value;
  std::string description;
};

// Converts a value to the type of spec.default_value. Floating-point options accept integers, but integer
// options do not accept floating-point numbers. If the value has the wrong type, is out of range or is not
// one of the choices, returns std::nullopt and sets `error` to an error message such as "expected a number,
// got true".
std::optional<OptionValue> convert_to_option_value(const RawValue& raw, const OptionSpec& spec,
                                                   std::string& error);

// Returns the type and the valid values of an option as text, such as `an integer of at least 1` or
// `one of "post", "pre"`. If `found` is a number or the text of a number that the type cannot represent, the
// text contains the limits of the type, such as `an integer from 1 to 9223372036854775807`.
std::string describe_expected_value(OptionSpec spec, const RawValue& found = {});

// Returns the TOML text of a value. Floating-point numbers are written with the fewest digits from which the
// same value can be parsed. If `allow_scalar` is true, a list of one string is written as a string.
std::string format_option_value(const OptionValue& value, bool allow_scalar = false);

bool is_listed(const std::vector<std::string>& names, const std::string& name);
// Returns a list of the names in quotes, such as `"a", "b" and "c"`.
std::string join_quoted(const std::vector<std::string>& names);

// Returns `text` as a TOML basic string with quotes.
std::string quote_toml_string(const std::string& text);

}  // namespace tapeformer
