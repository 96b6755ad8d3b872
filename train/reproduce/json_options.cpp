#include "train/reproduce/json_options.h"

#include "core/base/errors.h"
#include "train/command_options.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

// Converts a JSON value. If `is_text` is true, numbers become texts.
RawValue to_raw_value(const Json& json, bool is_text) {
  const std::string text = json.dump();
  if (json.is_string()) return {json.get<std::string>(), text};
  if (json.is_number() && is_text) return {text, text};
  if (json.is_boolean()) return {json.get<bool>(), text};
  if (json.is_number_integer()) return {json.get<int64_t>(), text};
  if (json.is_number()) return {json.get<double>(), text};
  if (!json.is_array()) return {std::monostate{}, "a table"};
  std::vector<RawValue> elements;
  for (const Json& element : json) elements.push_back(to_raw_value(element, is_text));
  return {std::move(elements), text};
}

}  // namespace

OptionValue read_option_value(const OptionSpec& spec, const Json& value, const std::string& where) {
  const bool is_text = std::holds_alternative<std::string>(spec.default_value) ||
                       std::holds_alternative<std::vector<std::string>>(spec.default_value);
  std::string problem;
  const auto converted = convert_to_option_value(to_raw_value(value, is_text), spec, problem);
  if (!converted) throw ConfigError(where + ": " + spec.name + ": " + problem);
  return *converted;
}

OptionValues read_option_values(const std::vector<OptionSpec>& specs, const Json& object,
                                const std::string& where) {
  OptionValues values(specs);
  std::vector<std::string> names;
  for (const OptionSpec& spec : specs) {
    names.push_back(spec.name);
    if (object.contains(spec.name)) values.set(spec.name, read_option_value(spec, object[spec.name], where));
  }
  KeyReader(object, where, names).check_unknown_keys();
  return values;
}

KeyReader::KeyReader(const Json& object, const std::string& where, std::vector<std::string> known_keys)
    : object_(object), where_(where), known_keys_(std::move(known_keys)) {
  if (!object.is_object()) throw ConfigError(where_ + ": expected a table, got " + object.dump());
}

void KeyReader::check_unknown_keys() const {
  for (const auto& [key, value] : object_.items())
    if (!is_listed(known_keys_, key))
      throw ConfigError(where_ + ": " + describe_unknown_word("key", key, known_keys_));
}

}  // namespace tapeformer
