// Config values in their three forms: as written (RawValue), typed by an OptionSpec (OptionValue) and as TOML
// text. Internal to the config code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/options.h"

namespace tapeformer {

// A value as it was written, before a specification gives it a type. `found` names it in errors: `string
// "abc"`.
struct RawValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<RawValue>> data;
  std::string found;
};

// Refines an OptionSpec of a list: `whole` admits only integers, `count` (if not 0) is the exact length.
struct ListForm {
  bool whole = false;
  size_t count = 0;
};

// The value in the type of the specification. An integer is taken where a number is expected, not the
// reverse. Returns nothing and fills `problem` ("expected …, got …") for another type, range or choice.
std::optional<OptionValue> typed_value(const RawValue& raw, const OptionSpec& spec, const ListForm& form,
                                       std::string& problem);

// Type and range of an option: "an integer of at least 1", "one of "post", "pre"".
std::string describe_expected(const OptionSpec& spec, const ListForm& form);

// TOML text of a value; doubles in the shortest form that reads back exactly.
std::string option_text(const OptionValue& value, bool whole);

// A TOML basic string with its quotes.
std::string quoted(const std::string& text);

}  // namespace tapeformer
