// A reader of JSON objects that checks the types and ranges of their entries. Only files in train/ include
// this header.
//
// The get functions throw CheckpointError if an entry is missing, has the wrong type or is out of range. The
// message begins with the prefix of the reader and the key of the entry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

class JsonObjectReader {
 public:
  // Parses a JSON object. Error messages begin with `prefix` and the key of an entry. `prefix` can be the
  // path of a file, followed by a colon and a space. Throws CheckpointError if the text is not a JSON object.
  JsonObjectReader(const std::string& text, const std::string& prefix);

  bool has_key(const std::string& key) const;
  bool is_null(const std::string& key) const;
  bool is_list(const std::string& key) const;
  std::vector<std::string> keys() const;
  // Returns a reader for the entry `key`, which must be an object.
  JsonObjectReader get_object(const std::string& key) const;
  std::string to_json() const;

  int64_t get_integer(const std::string& key, int64_t min, int64_t max) const;
  std::vector<int64_t> get_integers(const std::string& key, int64_t min, int64_t max) const;
  // Returns a finite number from `min` to `max`. `expected` describes this range in error messages.
  double get_number(const std::string& key, double min, double max, const std::string& expected) const;
  double get_number(const std::string& key) const;
  std::optional<double> get_number_or_null(const std::string& key) const;
  double get_seconds(const std::string& key) const;
  std::vector<double> get_numbers(const std::string& key) const;  // all elements must be finite
  std::string get_string(const std::string& key) const;
  std::vector<std::string> get_strings(const std::string& key) const;
  uint32_t get_crc32(const std::string& key) const;

 private:
  struct Object;
  explicit JsonObjectReader(std::shared_ptr<const Object> object);

  std::shared_ptr<const Object> object_;
};

}  // namespace tapeformer
