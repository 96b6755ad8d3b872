// Patterns of the names of tensors, as in `train.freeze`. In a pattern, * stands for any number of
// characters, periods included, and ? for one character. A pattern matches complete names. A pattern
// that begins with ! takes the names back that it matches: of the patterns that match a name, the last
// counts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

class NamePatterns {
 public:
  // `key` is the config key of the patterns, for messages.
  NamePatterns(std::string key, std::vector<std::string> patterns)
      : key_(std::move(key)), patterns_(std::move(patterns)) {}

  // Returns whether the patterns select the name.
  bool matches(const std::string& name) const;
  bool empty() const { return patterns_.empty(); }
  // Throws ConfigError if a pattern matches none of the names. `noun` says what the names are, for example
  // "tensor of the model". The message contains the names that differ least from the pattern.
  void require_matches(const std::vector<std::string>& names, const std::string& noun) const;

 private:
  std::string key_;
  std::vector<std::string> patterns_;
};

// Returns the least number of characters to insert, delete or replace in `name` so that the pattern matches.
int64_t count_pattern_edits(const std::string& pattern, const std::string& name);

}  // namespace tapeformer
