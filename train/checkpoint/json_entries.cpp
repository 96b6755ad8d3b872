#include "train/checkpoint/json_entries.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "data/files/checksum.h"

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kMaxShownText = 60;
constexpr int kMaxDepth = 32;

std::string format_json_value(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return concat_text("a list of ", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShownText) text = text.substr(0, kMaxShownText - 3) + "...";
  return text;
}

bool is_integer_between(const Json& value, int64_t min, int64_t max) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) &&
         value.get<int64_t>() >= min && value.get<int64_t>() <= max;
}

// Parses JSON and limits the depth of nesting. nlohmann::json copies, compares and prints values recursively,
// so deeply nested values could overflow the stack.
Json parse(const std::string& text, const std::string& prefix) {
  const auto check_depth = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kMaxDepth) throw CheckpointError(concat_text(prefix, "is nested deeper than ", kMaxDepth));
    return true;
  };
  try {
    return Json::parse(text, check_depth);
  } catch (const nlohmann::json::parse_error& error) {
    throw CheckpointError(concat_text(prefix, "is not valid JSON at byte ", error.byte));
  } catch (const nlohmann::json::exception&) {
    throw CheckpointError(prefix + "holds a number that is too large");
  }
}

}  // namespace

struct JsonObjectReader::Object {
  Json json;
  std::string prefix;

  const Json& at(const std::string& key) const {
    const auto found = json.find(key);
    if (found == json.end()) throw CheckpointError(concat_text(prefix, key, ": is missing"));
    return *found;
  }
};

JsonObjectReader::JsonObjectReader(const std::string& text, const std::string& prefix)
    : JsonObjectReader(std::make_shared<const Object>(Object{parse(text, prefix), prefix})) {}

JsonObjectReader::JsonObjectReader(std::shared_ptr<const Object> object) : object_(std::move(object)) {
  if (!object_->json.is_object())
    throw CheckpointError(
        concat_text(object_->prefix, "expected an object, got ", format_json_value(object_->json)));
}

void JsonObjectReader::fail(const std::string& key, const std::string& expected) const {
  throw CheckpointError(concat_text(object_->prefix, key, ": expected ", expected, ", got ",
                                    format_json_value(object_->at(key))));
}

bool JsonObjectReader::has_key(const std::string& key) const {
  return object_->json.contains(key);
}

bool JsonObjectReader::is_null(const std::string& key) const {
  return object_->at(key).is_null();
}

bool JsonObjectReader::is_list(const std::string& key) const {
  return object_->at(key).is_array();
}

std::vector<std::string> JsonObjectReader::keys() const {
  std::vector<std::string> names;
  for (const auto& item : object_->json.items()) names.push_back(item.key());
  return names;
}

JsonObjectReader JsonObjectReader::get_object(const std::string& key) const {
  if (!object_->at(key).is_object()) fail(key, "an object");
  return JsonObjectReader(
      std::make_shared<const Object>(Object{object_->at(key), object_->prefix + key + "."}));
}

std::string JsonObjectReader::to_json() const {
  return object_->json.dump();
}

int64_t JsonObjectReader::get_integer(const std::string& key, int64_t min, int64_t max) const {
  const Json& value = object_->at(key);
  if (!is_integer_between(value, min, max)) fail(key, concat_text("an integer from ", min, " to ", max));
  return value.get<int64_t>();
}

std::vector<int64_t> JsonObjectReader::get_integers(const std::string& key, int64_t min, int64_t max) const {
  const Json& value = object_->at(key);
  const auto fits = [&](const Json& element) { return is_integer_between(element, min, max); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), fits))
    fail(key, concat_text("a list of integers from ", min, " to ", max));
  return value.get<std::vector<int64_t>>();
}

double JsonObjectReader::get_number(const std::string& key, double min, double max,
                                    const std::string& expected) const {
  const Json& value = object_->at(key);
  const bool fits = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= min &&
                    value.get<double>() <= max;
  if (!fits) fail(key, expected);
  return value.get<double>();
}

double JsonObjectReader::get_number(const std::string& key) const {
  return get_number(key, -kInfinity, kInfinity, "a finite number");
}

std::optional<double> JsonObjectReader::get_number_or_null(const std::string& key) const {
  return object_->at(key).is_null() ? std::nullopt : std::optional(get_number(key));
}

double JsonObjectReader::get_seconds(const std::string& key) const {
  return get_number(key, 0, kInfinity, "a number of seconds of at least 0");
}

std::vector<double> JsonObjectReader::get_numbers(const std::string& key) const {
  const Json& value = object_->at(key);
  const auto is_finite = [](const Json& element) {
    return element.is_number() && std::isfinite(element.get<double>());
  };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_finite))
    fail(key, "a list of finite numbers");
  return value.get<std::vector<double>>();
}

std::string JsonObjectReader::get_string(const std::string& key) const {
  const Json& value = object_->at(key);
  if (!value.is_string()) fail(key, "a string");
  return value.get<std::string>();
}

std::vector<std::string> JsonObjectReader::get_strings(const std::string& key) const {
  const Json& value = object_->at(key);
  const auto is_text = [](const Json& element) { return element.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) fail(key, "a list of strings");
  return value.get<std::vector<std::string>>();
}

uint32_t JsonObjectReader::get_crc32(const std::string& key) const {
  const Json& value = object_->at(key);
  uint32_t crc32 = 0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc32, 16);
    if (error == std::errc() && format_crc32(crc32) == text) return crc32;
  }
  fail(key, "eight hexadecimal digits");
}

}  // namespace tapeformer
