#include "train/checkpoint/json_entries.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
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

bool is_finite(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>());
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
  // Returns the entry `key`. Throws CheckpointError, which says what is `expected`, unless is_valid(entry).
  template <class IsValid>
  const Json& require(const std::string& key, const std::string& expected, IsValid is_valid) const {
    const Json& value = at(key);
    if (!std::invoke(is_valid, value))
      throw CheckpointError(
          concat_text(prefix, key, ": expected ", expected, ", got ", format_json_value(value)));
    return value;
  }
  template <class IsValid>
  const Json& require_list(const std::string& key, const std::string& expected, IsValid is_valid) const {
    return require(key, expected, [&](const Json& value) {
      return value.is_array() && std::all_of(value.begin(), value.end(),
                                             [&](const Json& one) { return std::invoke(is_valid, one); });
    });
  }
};

JsonObjectReader::JsonObjectReader(const std::string& text, const std::string& prefix)
    : JsonObjectReader(std::make_shared<const Object>(Object{parse(text, prefix), prefix})) {}

JsonObjectReader::JsonObjectReader(std::shared_ptr<const Object> object) : object_(std::move(object)) {
  if (!object_->json.is_object())
    throw CheckpointError(
        concat_text(object_->prefix, "expected an object, got ", format_json_value(object_->json)));
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
  const Json& value = object_->require(key, "an object", &Json::is_object);
  return JsonObjectReader(std::make_shared<const Object>(Object{value, object_->prefix + key + "."}));
}

std::string JsonObjectReader::to_json() const {
  return object_->json.dump();
}

int64_t JsonObjectReader::get_integer(const std::string& key, int64_t min, int64_t max) const {
  return object_->require(key, concat_text("an integer from ", min, " to ", max),
                          [&](const Json& value) { return is_integer_between(value, min, max); });
}

std::vector<int64_t> JsonObjectReader::get_integers(const std::string& key, int64_t min, int64_t max) const {
  return object_->require_list(key, concat_text("a list of integers from ", min, " to ", max),
                               [&](const Json& value) { return is_integer_between(value, min, max); });
}

double JsonObjectReader::get_number(const std::string& key, double min, double max,
                                    const std::string& expected) const {
  return object_->require(key, expected, [&](const Json& value) {
    return is_finite(value) && value.get<double>() >= min && value.get<double>() <= max;
  });
}

double JsonObjectReader::get_number(const std::string& key) const {
  return object_->require(key, "a finite number", is_finite);
}

std::optional<double> JsonObjectReader::get_number_or_null(const std::string& key) const {
  return is_null(key) ? std::nullopt : std::optional(get_number(key));
}

double JsonObjectReader::get_seconds(const std::string& key) const {
  return get_number(key, 0, kInfinity, "a number of seconds of at least 0");
}

std::vector<double> JsonObjectReader::get_numbers(const std::string& key) const {
  return object_->require_list(key, "a list of finite numbers", is_finite);
}

std::string JsonObjectReader::get_string(const std::string& key) const {
  return object_->require(key, "a string", &Json::is_string);
}

std::vector<std::string> JsonObjectReader::get_strings(const std::string& key) const {
  return object_->require_list(key, "a list of strings", &Json::is_string);
}

uint32_t JsonObjectReader::get_crc32(const std::string& key) const {
  uint32_t crc32 = 0;
  object_->require(key, "eight hexadecimal digits", [&](const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc32, 16);
    return error == std::errc() && format_crc32(crc32) == text;
  });
  return crc32;
}

}  // namespace tapeformer
