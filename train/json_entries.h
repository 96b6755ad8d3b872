// Reads the entries of a JSON object and checks their types and ranges. Internal to train/.
//
// Every error is a CheckpointError "PLACE KEY: expected …, got …".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

class JsonEntries {
 public:
  // Parses a text. `place` stands before the key in errors: "PATH: " or "PATH: task.".
  JsonEntries(const std::string& text, const std::string& place);

  bool has(const std::string& key) const;
  std::vector<std::string> keys() const;
  // The reader of an entry that is an object.
  JsonEntries object(const std::string& key) const;
  // The object as JSON.
  std::string text() const;

  int64_t integer(const std::string& key, int64_t least, int64_t most) const;
  // A finite number from `least` to `most`; `expected` describes it in errors.
  double number(const std::string& key, double least, double most, const std::string& expected) const;
  double number(const std::string& key) const;
  std::optional<double> number_or_null(const std::string& key) const;
  double seconds(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;  // finite
  std::vector<std::string> texts(const std::string& key) const;
  uint32_t crc32(const std::string& key) const;

 private:
  struct Object;
  explicit JsonEntries(std::shared_ptr<const Object> object);
  [[noreturn]] void fail(const std::string& key, const std::string& expected) const;

  std::shared_ptr<const Object> object_;
};

}  // namespace tapeformer
