#include "core/options.h"

#include <algorithm>
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
  if (const auto* number = std::get_if<int64_t>(&value)) return *number != 0;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  const auto is_listed = [&](const std::string& text) {
    return std::find(condition.values.begin(), condition.values.end(), text) != condition.values.end();
  };
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    return std::any_of(list->begin(), list->end(), is_listed);
  return is_listed(std::get<std::string>(value));
}

// Returns the condition as text, such as `form = "2d"`, `terms contains "dense" or "random"` or `blocks > 0`.
std::string text_of(const OptionCondition& condition, const OptionValue& value) {
  if (std::holds_alternative<int64_t>(value)) return condition.option + " > 0";
  if (std::holds_alternative<bool>(value)) return condition.option + " is set";
  if (condition.values == std::vector<std::string>{""}) return condition.option + " is empty";
  std::string text = condition.option + (std::holds_alternative<std::string>(value) ? " = " : " contains ");
  for (size_t i = 0; i < condition.values.size(); ++i)
    text += (i > 0 ? " or \"" : "\"") + condition.values[i] + "\"";
  return text;
}

}  // namespace

std::vector<UnusedOption> find_unused_options(const std::vector<OptionSpec>& specs,
                                              const OptionValues& values) {
  std::vector<UnusedOption> unused;
  for (const OptionSpec& spec : specs) {
    if (spec.used_if.option.empty() || values.values_by_name().at(spec.name) == spec.default_value) continue;
    const OptionValue& other = values.values_by_name().at(spec.used_if.option);
    if (!is_condition_met(spec.used_if, other))
      unused.push_back({spec.name, "has an effect only if " + text_of(spec.used_if, other)});
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
