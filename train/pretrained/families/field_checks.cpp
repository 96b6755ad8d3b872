#include "train/pretrained/families/field_checks.h"

#include <utility>

#include "core/base/errors.h"
#include "core/system/printable.h"

namespace tapeformer {
namespace {

const ConfigJson& get_field(const ConfigJson& config, const std::string& key, const std::string& source) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null())
    throw CheckpointError(concat_text(source, ": ", key, ": is missing"));
  return *found;
}

}  // namespace

std::string describe_json(const ConfigJson& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 4) return concat_text("a list of ", value.size());
  std::string text = value.dump(-1, ' ', true, ConfigJson::error_handler_t::replace);
  constexpr size_t kMaxShown = 60;
  return text.size() > kMaxShown ? text.substr(0, kMaxShown) + "..." : text;
}

void refuse_field(const std::string& source, const std::string& key, const std::string& expected,
                  const ConfigJson& value) {
  throw CheckpointError(concat_text(source, ": ", escape_line(key.substr(0, 100)), ": expected ", expected,
                                    ", got ", describe_json(value)));
}

bool is_missing(const ConfigJson& config, const std::string& key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null();
}

bool is_integer(const ConfigJson& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
}

int64_t get_integer_field(const ConfigJson& config, const std::string& key, int64_t min,
                          const std::string& source) {
  const ConfigJson& value = get_field(config, key, source);
  if (!is_integer(value) || value.get<int64_t>() < min)
    refuse_field(source, key, concat_text("an integer of at least ", min), value);
  return value.get<int64_t>();
}

int64_t get_integer_field(const ConfigJson& config, const std::string& key, int64_t min, int64_t fallback,
                          const std::string& source) {
  return is_missing(config, key) ? fallback : get_integer_field(config, key, min, source);
}

ConfigJson get_optional_field(const ConfigJson& config, const std::string& key, ConfigJson fallback) {
  return is_missing(config, key) ? std::move(fallback) : config.at(key);
}

double get_number_field(const ConfigJson& config, const std::string& key, const std::string& source) {
  const ConfigJson& value = get_field(config, key, source);
  if (!value.is_number()) refuse_field(source, key, "a number", value);
  return value.get<double>();
}

std::string get_text_field(const ConfigJson& config, const std::string& key, const std::string& source) {
  const auto found = config.find(key);
  if (found == config.end()) throw CheckpointError(concat_text(source, ": ", key, ": is missing"));
  if (!found->is_string()) refuse_field(source, key, "a text", *found);
  return found->get<std::string>();
}

}  // namespace tapeformer
