// Typed, documented options: one declaration of name, type, default, range and help serves validation,
// --help, resolved configs and did-you-mean. The config schema and the parameters of an attention kind are
// both lists of OptionSpec.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace tapeformer {

using OptionValue =
    std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

struct OptionSpec {
  std::string name;
  OptionValue default_value;                              // its alternative is the option's type
  std::string help;                                       // one line
  double min = -std::numeric_limits<double>::infinity();  // inclusive; numbers only
  double max = std::numeric_limits<double>::infinity();   // inclusive; numbers only
  std::vector<std::string> choices = {};                  // strings only; empty: any text
};

// Values by name, complete: every option of the specification is present.
class OptionValues {
 public:
  OptionValues() = default;
  explicit OptionValues(const std::vector<OptionSpec>& specs) {
    for (const auto& spec : specs) values_[spec.name] = spec.default_value;
  }
  void set(const std::string& name, OptionValue value) { values_[name] = std::move(value); }
  // Throws std::out_of_range for an unknown name, std::bad_variant_access for another type.
  template <class T>
  const T& get(const std::string& name) const {
    return std::get<T>(values_.at(name));
  }
  const std::map<std::string, OptionValue>& all() const { return values_; }

 private:
  std::map<std::string, OptionValue> values_;
};

// The candidate nearest to a mistyped word by edit distance, or "" if none is near enough to suggest.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace tapeformer
