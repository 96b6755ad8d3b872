#include "core/options/options.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tapeformer {
namespace {

size_t compute_edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

bool is_condition_met(const OptionCondition& condition, const OptionValue& value) {
  const auto is_listed = [&](const std::string& text) {
    return std::find(condition.values.begin(), condition.values.end(), text) != condition.values.end();
  };
  bool is_met = false;
  if (const auto* integer = std::get_if<int64_t>(&value))
    is_met = condition.values.empty() ? *integer != 0 : is_listed(std::to_string(*integer));
  if (const auto* number = std::get_if<double>(&value)) is_met = *number != 0;
  if (const auto* flag = std::get_if<bool>(&value)) is_met = *flag;
  if (const auto* text = std::get_if<std::string>(&value)) is_met = is_listed(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    is_met = std::any_of(list->begin(), list->end(), is_listed);
  return is_met != condition.is_negated;
}

// Returns the condition as text, such as `form = "2d"`, `terms contains "dense" or "random"` or `blocks > 0`.
// `value` is a value of the option of the condition.
std::string text_of(const OptionCondition& condition, const OptionValue& value) {
  const bool is_negated = condition.is_negated;
  const bool is_integer = std::holds_alternative<int64_t>(value);
  if ((is_integer && condition.values.empty()) || std::holds_alternative<double>(value))
    return condition.option + (is_negated ? " = 0" : " > 0");
  if (std::holds_alternative<bool>(value)) return condition.option + (is_negated ? " is not set" : " is set");
  if (condition.values == std::vector<std::string>{""})
    return condition.option + (is_negated ? " is not empty" : " is empty");
  const bool is_list = std::holds_alternative<std::vector<std::string>>(value);
  const char* const quote = is_integer ? "" : "\"";
  std::string text = condition.option + (is_list      ? (is_negated ? " does not contain " : " contains ")
                                         : is_negated ? " is not "
                                                      : " = ");
  for (size_t i = 0; i < condition.values.size(); ++i)
    text += (i > 0 ? " or " : "") + (quote + condition.values[i] + quote);
  return text;
}

const OptionSpec* find_spec(const std::vector<OptionSpec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

OptionSpec& OptionSpec::require_range(double low, double high) {
  min = low;
  max = high;
  return *this;
}

OptionSpec& OptionSpec::require_at_least(double low) {
  min = low;
  return *this;
}

OptionSpec& OptionSpec::require_fraction_below_one() {
  return require_range(0, std::nextafter(1.0, 0.0));
}

OptionSpec& OptionSpec::require_one_of(std::vector<std::string> values) {
  choices = std::move(values);
  return *this;
}

OptionSpec& OptionSpec::require_one_of_integers(std::vector<int64_t> values) {
  integer_choices = std::move(values);
  return *this;
}

OptionSpec& OptionSpec::use_for(OptionUse commands) {
  use = commands;
  return *this;
}

OptionSpec& OptionSpec::use_if(OptionCondition condition) {
  used_if = std::move(condition);
  return *this;
}

OptionSpec& OptionSpec::allow_change_on_resume() {
  may_change_on_resume = true;
  return *this;
}

OptionSpec& OptionSpec::fix_by_training() {
  is_fixed_by_training = true;
  return *this;
}

OptionSpec& OptionSpec::mark_as_path() {
  is_path = true;
  return *this;
}

bool has_option(const std::vector<OptionSpec>& specs, const std::string& name) {
  return find_spec(specs, name) != nullptr;
}

OptionValues complete_options(const std::vector<OptionSpec>& specs, const OptionValues& values) {
  OptionValues all(specs);
  for (const auto& [name, value] : values.values_by_name()) {
    const OptionSpec* const spec = find_spec(specs, name);
    if (!spec) throw std::invalid_argument("option \"" + name + "\" is not declared");
    if (spec->default_value.index() != value.index())
      throw std::invalid_argument("option \"" + name + "\" is declared with another type");
    all.set(name, value);
  }
  return all;
}

bool is_option_used(const OptionSpec& spec, const std::vector<OptionSpec>& specs,
                    const OptionValues& values) {
  if (spec.used_if.option.empty()) return true;
  const OptionSpec* const other = find_spec(specs, spec.used_if.option);
  return (!other || is_option_used(*other, specs, values)) &&
         is_condition_met(spec.used_if, values.values_by_name().at(spec.used_if.option));
}

std::string describe_condition(const OptionSpec& spec, const std::vector<OptionSpec>& specs) {
  const OptionSpec* const other = find_spec(specs, spec.used_if.option);
  return other ? text_of(spec.used_if, other->default_value) : "";
}

std::vector<UnusedOption> find_unused_options(const std::vector<OptionSpec>& specs,
                                              const OptionValues& values) {
  std::vector<UnusedOption> unused;
  for (const OptionSpec& spec : specs) {
    if (spec.used_if.option.empty() || values.values_by_name().at(spec.name) == spec.default_value) continue;
    if (!is_option_used(spec, specs, values))
      unused.push_back({spec.name, "has an effect only if " + describe_condition(spec, specs)});
  }
  return unused;
}

std::string find_nearest_name(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = compute_edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tapeformer
