// Typed options. An OptionSpec declares the name, type, default, range and help text of an option.
// Validation, help texts, resolved configs and spelling suggestions all use this declaration. The config
// schema and the options of an attention kind are lists of OptionSpec.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace tapeformer {

using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<double>, std::vector<std::string>>;

// A condition on the value of the option `option`. The condition holds if the value is a string or an integer
// in `values`, a list of strings that contains one of `values`, or true. Without `values`, it holds for
// nonzero numbers. If `is_negated` is true, the condition holds for the other values.
struct OptionCondition {
  std::string option = {};  // if empty, the condition always holds
  std::vector<std::string> values = {};
  bool is_negated = false;
};

// The commands that need an option of a part of a run: a data set, a model, an optimizer or a schedule.
enum class OptionUse {
  process,   // settings of the process: name, device, threads and seed
  model,     // the model and its input; used by all commands
  features,  // features of speech; used where recordings are read
  data,      // the data set; used where it is read
  training,
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
  std::vector<int64_t> integer_choices = {};  // only for integers; if empty, the range decides
  size_t list_length = 0;                     // only for lists; 0: any length
  bool allow_scalar = false;                  // whether a single string stands for a list of one string
  OptionUse use = OptionUse::training;
  bool may_change_on_resume = false;
  // Whether the weights of a trained model are for one value, although they have the same shapes with others.
  bool is_fixed_by_training = false;
  bool is_path = false;  // relative paths are relative to the working directory

  OptionSpec& require_range(double low, double high);
  OptionSpec& require_at_least(double low);
  OptionSpec& require_fraction_below_one();  // restricts the value x to 0 <= x < 1
  OptionSpec& require_one_of(std::vector<std::string> values);
  OptionSpec& require_one_of_integers(std::vector<int64_t> values);
  OptionSpec& use_for(OptionUse commands);
  OptionSpec& use_if(OptionCondition condition);
  OptionSpec& allow_change_on_resume();
  OptionSpec& fix_by_training();
  OptionSpec& mark_as_path();
};

// The values of a list of options. Each option initially has its default value.
class OptionValues {
 public:
  OptionValues() = default;
  OptionValues(std::initializer_list<std::pair<const std::string, OptionValue>> values) : values_(values) {}
  explicit OptionValues(const std::vector<OptionSpec>& specs) {
    for (const auto& spec : specs) values_[spec.name] = spec.default_value;
  }
  void set(const std::string& name, OptionValue value) { values_[name] = std::move(value); }
  void erase(const std::string& name) { values_.erase(name); }
  bool operator==(const OptionValues&) const = default;
  bool contains(const std::string& name) const { return values_.contains(name); }
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

bool has_option(const std::vector<OptionSpec>& specs, const std::string& name);

// Returns the value of an option: that in `values`, or else the default. Throws std::invalid_argument if
// there is no such option, or if T is not its type.
template <class T>
T get_value(const std::vector<OptionSpec>& specs, const OptionValues& values, const std::string& name) {
  return values.contains(name) ? values.get<T>(name) : OptionValues(specs).get<T>(name);
}

// Returns the values of all options: those in `values`, and defaults for the others. Throws
// std::invalid_argument if `values` has an option that is not in `specs`, or that has another type.
OptionValues complete_options(const std::vector<OptionSpec>& specs, const OptionValues& values);

// Returns whether an option has an effect: its condition holds, and the option of the condition has an
// effect.
bool is_option_used(const OptionSpec& spec, const std::vector<OptionSpec>& specs, const OptionValues& values);
// Returns the condition of an option as text, such as `form = "2d"`, or "" if it has none.
std::string describe_condition(const OptionSpec& spec, const std::vector<OptionSpec>& specs);

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
