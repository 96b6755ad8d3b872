#include "train/reproduce/values.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/base/errors.h"
#include "train/command_options.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr int kMaxDepth = 16;  // of variables whose values contain placeholders

std::string to_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json to_json(double number) {
  const bool is_integer = number == std::floor(number) && std::abs(number) < 1e15;
  return is_integer ? Json(static_cast<int64_t>(number)) : Json(number);
}

double operate(const std::string& operation, double a, double b) {
  if (operation == "*") return a * b;
  if (operation == "/") return a / b;
  if (operation == "div") return std::floor(a / b);
  if (operation == "min") return std::min(a, b);
  if (operation == "max") return std::max(a, b);
  throw ConfigError("\"" + operation + "\" is not one of * / div min max");
}

Json fill(const Json& value, const Lookup& lookup, int depth);

// Returns the value of a variable or of a number. If there is none, returns std::nullopt.
std::optional<Json> find_operand(const std::string& word, const Lookup& lookup, int depth) {
  if (const Json number = Json::parse(word, nullptr, false); number.is_number()) return number;
  const std::optional<Json> found = lookup ? lookup(word) : std::nullopt;
  if (!found) return std::nullopt;
  if (depth > kMaxDepth) throw ConfigError("the variable \"" + word + "\" refers to itself");
  Json value = fill(*found, lookup, depth + 1);
  if (value.is_number_float()) value = to_json(value.get<double>());
  if (value.is_string() && value.get<std::string>().find('{') != std::string::npos) return std::nullopt;
  return value;
}

// Returns the value of a placeholder, or std::nullopt if a variable is unknown.
std::optional<Json> evaluate(const std::string& placeholder, const Lookup& lookup, int depth) {
  std::istringstream words(placeholder);
  std::string word, operation;
  if (!(words >> word)) return std::nullopt;
  std::optional<Json> value = find_operand(word, lookup, depth);
  while (value && words >> operation >> word) {
    const std::optional<Json> operand = find_operand(word, lookup, depth);
    if (!operand) return std::nullopt;
    if (!value->is_number() || !operand->is_number())
      throw ConfigError("{" + placeholder + "}: an operand is no number");
    value = to_json(operate(operation, value->get<double>(), operand->get<double>()));
  }
  return value;
}

Json fill(const Json& value, const Lookup& lookup, int depth) {
  if (value.is_structured()) {
    Json filled = value;
    for (Json& element : filled) element = fill(element, lookup, depth);
    return filled;
  }
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  std::string filled;
  size_t end = 0;
  for (size_t begin = 0; (begin = text.find('{', end)) != std::string::npos;) {
    const size_t close = text.find('}', begin);
    if (close == std::string::npos) break;
    const std::string placeholder = text.substr(begin + 1, close - begin - 1);
    const std::optional<Json> found = evaluate(placeholder, lookup, depth);
    if (found && begin == 0 && close + 1 == text.size()) return *found;
    filled += text.substr(end, begin - end) + (found ? to_text(*found) : "{" + placeholder + "}");
    end = close + 1;
  }
  return filled + text.substr(end);
}

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

Lookup make_lookup(Json object, Lookup outer) {
  return
      [object = std::move(object), outer = std::move(outer)](const std::string& name) -> std::optional<Json> {
        if (const auto found = object.find(name); found != object.end()) return *found;
        return outer ? outer(name) : std::nullopt;
      };
}

std::string fill_text(const std::string& text, const Lookup& lookup) {
  return to_text(fill(text, lookup, 0));
}

std::vector<std::string> fill_texts(std::vector<std::string> texts, const Lookup& lookup) {
  for (std::string& text : texts) text = fill_text(text, lookup);
  return texts;
}

Json fill_json(const Json& value, const Lookup& lookup) {
  return fill(value, lookup, 0);
}

const std::vector<std::string>& list_table_scales() {
  static const auto* const names = new std::vector<std::string>{"smoke", "small", "paper"};
  return *names;
}

Json select_scale(const Json& value, const std::string& scale) {
  const auto is_choice = [](const Json& json) {
    if (!json.is_object() || json.empty()) return false;
    const auto& scales = list_table_scales();
    return std::all_of(json.items().begin(), json.items().end(), [&](const auto& entry) {
      return entry.key() == "else" || is_listed(scales, entry.key());
    });
  };
  if (is_choice(value)) return select_scale(value.value(scale, value.value("else", Json())), scale);
  if (!value.is_structured()) return value;
  Json selected = value.is_array() ? Json::array() : Json::object();
  for (const auto& [key, element] : value.items()) {
    const Json one = select_scale(element, scale);
    if (one.is_null()) continue;
    if (value.is_object())
      selected[key] = one;
    else if (is_choice(element) && one.is_array())
      selected.insert(selected.end(), one.begin(), one.end());
    else
      selected.push_back(one);
  }
  return selected;
}

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
