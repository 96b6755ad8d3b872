// Typed options. An OptionSpec declares the name, type, default, range and help text of an option.
// Validation, help texts, resolved configs and spelling suggestions all use this declaration. The config
// schema and the options of an attention kind are lists of OptionSpec.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace tapeformer {

using OptionValue =
    std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

// A condition on the value of the option `option`. The condition holds if the value is a string in `values`,
// a list of strings that contains one of `values`, a nonzero integer, or true.
struct OptionCondition {
  std::string option = {};  // if empty, the condition always holds
  std::vector<std::string> values = {};
};

struct OptionSpec {
  std::string name;
  OptionValue default_value;                              // the option has the type of this value
  std::string help;                                       // one line of text
  double min = -std::numeric_limits<double>::infinity();  // inclusive; only for numbers
  double max = std::numeric_limits<double>::infinity();   // inclusive; only for numbers
  std::vector<std::string> choices = {};                  // only for strings; if empty, any text is valid
  OptionCondition used_if = {};  // if the condition is false, the option has no effect
  // The default in help texts if it is not default_value, for example "run.seed".
  std::string default_text = {};
};

// The values of a list of options. Each option initially has its default value.
class OptionValues {
 public:
  OptionValues() = default;
  explicit OptionValues(const std::vector<OptionSpec>& specs) {
    for (const auto& spec : specs) values_[spec.name] = spec.default_value;
  }
  void set(const std::string& name, OptionValue value) { values_[name] = std::move(value); }
  // Returns the value of the option `name`. Throws std::invalid_argument if no option has this name, or if T
  // is not the type of the option.
  template <class T>
  const T& get(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::invalid_argument("option \"" + name + "\" is not declared");
    const T* const value = std::get_if<T>(&found->second);
    if (!value) throw std::invalid_argument("option \"" + name + "\" is declared with another type");
    return *value;
  }
  const std::map<std::string, OptionValue>& values_by_name() const { return values_; }

 private:
  std::map<std::string, OptionValue> values_;
};

// An option that was changed from its default value but has no effect.
struct UnusedOption {
  std::string name;
  std::string reason;  // for example `has an effect only if form = "2d"`
};
// Returns the options that have no effect and differ from their default, in the order of `specs`.
std::vector<UnusedOption> find_unused_options(const std::vector<OptionSpec>& specs,
                                              const OptionValues& values);

// Returns the candidate with the smallest edit distance to `word`, or "" if all distances are greater than
// max(2, length of `word` / 3).
std::string find_nearest_name(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace tapeformer
