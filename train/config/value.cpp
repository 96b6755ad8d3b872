#include "train/config/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

constexpr double kInt64Limit = 0x1p63;

std::string format_number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string format_float(double value) {
  std::string text = format_number(value);
  // Appends ".0", because TOML reads "1" as an integer. "inf" and "nan" contain "n" and stay unchanged.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// Returns a limit of a range as text. 2^63 and -2^63 stand for the limits of int64_t.
std::string format_limit(const OptionSpec& spec, double limit) {
  if (!std::holds_alternative<int64_t>(spec.default_value)) return format_number(limit);
  return std::to_string(limit < kInt64Limit ? static_cast<int64_t>(limit)
                                            : std::numeric_limits<int64_t>::max());
}

std::string describe_range(const OptionSpec& spec) {
  const bool low = std::isfinite(spec.min), high = std::isfinite(spec.max);
  if (low && spec.max == std::nextafter(1.0, 0.0))
    return " of at least " + format_limit(spec, spec.min) + " and below 1";
  if (low && high) return " from " + format_limit(spec, spec.min) + " to " + format_limit(spec, spec.max);
  if (low) return " of at least " + format_limit(spec, spec.min);
  if (high) return " of at most " + format_limit(spec, spec.max);
  return "";
}

template <class T>
bool exceeds_type(const std::string& text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ptr == end &&
         (result.ec == std::errc::result_out_of_range || std::isinf(static_cast<double>(number)));
}

std::string describe_choices(const std::vector<std::string>& choices) {
  std::string text;
  for (const auto& choice : choices) text += (text.empty() ? "" : ", ") + quote_toml_string(choice);
  return text;
}

bool is_in_range(double value, const OptionSpec& spec) {
  return std::isfinite(value) && value >= spec.min && value <= spec.max;
}

std::optional<double> to_number(const RawValue& raw, bool requires_integers) {
  if (auto integer = std::get_if<int64_t>(&raw.value)) return static_cast<double>(*integer);
  if (auto number = std::get_if<double>(&raw.value); number && !requires_integers) return *number;
  return std::nullopt;
}

bool is_choice(const std::string& text, const OptionSpec& spec) {
  return spec.choices.empty() ||
         std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end();
}

// Converts a list to the type of spec.default_value. If an element is invalid, returns std::nullopt and sets
// `culprit` to a description of the element.
std::optional<OptionValue> convert_list(const std::vector<RawValue>& raw, const OptionSpec& spec,
                                        std::string& culprit) {
  std::vector<double> numbers;
  std::vector<std::string> texts;
  const bool of_texts = std::holds_alternative<std::vector<std::string>>(spec.default_value);
  const bool of_integers = std::holds_alternative<std::vector<int64_t>>(spec.default_value);
  for (const auto& element : raw) {
    culprit = element.description + " in the list";
    if (of_texts) {
      const auto text = std::get_if<std::string>(&element.value);
      if (!text || !is_choice(*text, spec)) return std::nullopt;
      texts.push_back(*text);
    } else {
      const auto number = to_number(element, of_integers);
      if (!number || !is_in_range(*number, spec)) return std::nullopt;
      numbers.push_back(*number);
    }
  }
  if (of_texts) return texts;
  if (of_integers) return std::vector<int64_t>(numbers.begin(), numbers.end());
  return numbers;
}

// Returns the limit of the type of `type` if `found` is a number that exceeds it, and infinity otherwise.
double find_type_limit(const OptionValue& type, const RawValue& found) {
  const auto* const text = std::get_if<std::string>(&found.value);
  const auto* const number = std::get_if<double>(&found.value);
  if (std::holds_alternative<int64_t>(type) && text && exceeds_type<int64_t>(*text)) return kInt64Limit;
  if (std::holds_alternative<double>(type) &&
      ((text && exceeds_type<double>(*text)) || (number && std::isinf(*number))))
    return std::numeric_limits<double>::max();
  return std::numeric_limits<double>::infinity();
}

// Converts a value to the type of spec.default_value. Returns std::nullopt if the value is invalid. If an
// element of a list is invalid, sets `culprit` to a description of the element.
std::optional<OptionValue> convert(const RawValue& raw, const OptionSpec& spec, std::string& culprit) {
  const OptionValue& type = spec.default_value;
  if (std::holds_alternative<bool>(type)) {
    if (auto value = std::get_if<bool>(&raw.value)) return *value;
  } else if (std::holds_alternative<int64_t>(type)) {
    auto value = std::get_if<int64_t>(&raw.value);
    const auto& choices = spec.integer_choices;
    if (value && is_in_range(static_cast<double>(*value), spec) &&
        (choices.empty() || std::find(choices.begin(), choices.end(), *value) != choices.end()))
      return *value;
  } else if (std::holds_alternative<double>(type)) {
    const auto value = to_number(raw, false);
    if (value && is_in_range(*value, spec)) return *value;
  } else if (std::holds_alternative<std::string>(type)) {
    auto value = std::get_if<std::string>(&raw.value);
    if (value && is_choice(*value, spec)) return *value;
  } else if (spec.allow_scalar && std::holds_alternative<std::string>(raw.value)) {
    const auto& text = std::get<std::string>(raw.value);
    if (is_choice(text, spec)) return std::vector<std::string>{text};
  } else if (auto list = std::get_if<std::vector<RawValue>>(&raw.value)) {
    if (spec.list_length == 0 || list->size() == spec.list_length) return convert_list(*list, spec, culprit);
  }
  return std::nullopt;
}

}  // namespace

std::optional<OptionValue> convert_to_option_value(const RawValue& raw, const OptionSpec& spec,
                                                   std::string& error) {
  std::string culprit = raw.description;
  auto value = convert(raw, spec, culprit);
  if (value) return value;
  const std::string expected = describe_expected_value(spec, raw);
  error = "expected " + expected + ", got " + culprit;
  std::vector<RawValue> elements{raw};
  if (auto list = std::get_if<std::vector<RawValue>>(&raw.value)) elements = *list;
  for (const RawValue& element : elements) {
    const auto text = std::get_if<std::string>(&element.value);
    if (!text || is_choice(*text, spec)) continue;
    const std::string near = find_nearest_name(*text, spec.choices);
    // The suggestion comes first, because lists of choices can be long.
    if (!near.empty())
      error = "got " + culprit + "; did you mean " + quote_toml_string(near) + "? Expected " + expected;
    break;
  }
  return std::nullopt;
}

std::string describe_expected_value(OptionSpec spec, const RawValue& found) {
  const double limit = find_type_limit(spec.default_value, found);
  spec.min = std::max(spec.min, -limit);
  spec.max = std::min(spec.max, limit);
  const OptionValue& type = spec.default_value;
  if (std::holds_alternative<bool>(type)) return "true or false";
  if (!spec.integer_choices.empty()) {
    std::string choices;
    for (const int64_t choice : spec.integer_choices)
      choices += (choices.empty() ? "" : ", ") + std::to_string(choice);
    return "one of " + choices;
  }
  if (std::holds_alternative<int64_t>(type)) return "an integer" + describe_range(spec);
  if (std::holds_alternative<double>(type)) return "a number" + describe_range(spec);
  if (std::holds_alternative<std::string>(type))
    return spec.choices.empty() ? "a string" : "one of " + describe_choices(spec.choices);
  if (spec.allow_scalar)
    return (spec.choices.empty() ? "a string" : "one of " + describe_choices(spec.choices)) +
           " or a list of them";
  const std::string list = "a list of " + (spec.list_length ? std::to_string(spec.list_length) + " " : "");
  if (std::holds_alternative<std::vector<int64_t>>(type)) return list + "integers" + describe_range(spec);
  if (std::holds_alternative<std::vector<double>>(type)) return list + "numbers" + describe_range(spec);
  return list + (spec.choices.empty() ? "strings" : "strings out of " + describe_choices(spec.choices));
}

std::string format_option_value(const OptionValue& value, bool allow_scalar) {
  if (auto flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (auto integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (auto number = std::get_if<double>(&value)) return format_float(*number);
  if (auto text = std::get_if<std::string>(&value)) return quote_toml_string(*text);
  std::string list;
  const auto add = [&list](const std::string& text) { list += (list.empty() ? "" : ", ") + text; };
  if (auto integers = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t integer : *integers) add(std::to_string(integer));
  } else if (auto numbers = std::get_if<std::vector<double>>(&value)) {
    for (const double number : *numbers) add(format_float(number));
  } else {
    const auto& texts = std::get<std::vector<std::string>>(value);
    if (allow_scalar && texts.size() == 1) return quote_toml_string(texts.front());
    for (const auto& text : texts) add(quote_toml_string(text));
  }
  return "[" + list + "]";
}

bool is_listed(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string join_quoted(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + quote_toml_string(names[i]);
  return text;
}

std::string quote_toml_string(const std::string& text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 32 || byte == 127) {
      result += "\\u00";
      result += {kHex[byte >> 4], kHex[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace tapeformer
