#include "train/config/schema_key.h"

#include <algorithm>
#include <cmath>

namespace tapeformer {

const KeyCondition* SchemaKey::find_unmet_condition(const Config& config) const {
  for (const KeyCondition& condition : scope)
    if (!condition.is_met(config)) return &condition;
  return nullptr;
}

std::string SchemaKey::explain_unused_by(ConfigPurpose purpose) const {
  if (purpose == ConfigPurpose::training || role == KeyRole::model) return "";
  if (purpose == ConfigPurpose::benchmark && is_used_by_benchmarks) return "";
  if (role == KeyRole::process && spec.name != "name")
    return "has an effect in training only; use --" + spec.name;
  if (role == KeyRole::process || role == KeyRole::training) return "has an effect in training only";
  if (purpose == ConfigPurpose::evaluation) return "";
  if (role == KeyRole::features && purpose == ConfigPurpose::transcription) return "";
  return "belongs to data sets, and this command reads no data set";
}

SchemaKey& SchemaKey::allow_change_on_resume() {
  is_changeable_on_resume = true;
  return *this;
}

SchemaKey& SchemaKey::mark_used_by_benchmarks() {
  is_used_by_benchmarks = true;
  return *this;
}

SchemaKey& SchemaKey::require_range(double min, double max) {
  spec.min = min;
  spec.max = max;
  return *this;
}

SchemaKey& SchemaKey::require_at_least(double min) {
  spec.min = min;
  return *this;
}

SchemaKey& SchemaKey::require_fraction_below_one() {
  return require_range(0, std::nextafter(1.0, 0.0));
}

SchemaKey& SchemaKey::require_one_of(std::vector<std::string> choices) {
  spec.choices = std::move(choices);
  return *this;
}

SchemaKey& SchemaKey::require_one_of_integers(std::vector<int64_t> choices) {
  find_error = [choices = std::move(choices)](const OptionValue& value) -> std::string {
    const int64_t number = std::get<int64_t>(value);
    if (std::find(choices.begin(), choices.end(), number) != choices.end()) return "";
    std::string text = "expected one of";
    for (int64_t choice : choices) text += (choice == choices.front() ? " " : ", ") + std::to_string(choice);
    return text + ", got " + std::to_string(number);
  };
  return *this;
}

}  // namespace tapeformer
