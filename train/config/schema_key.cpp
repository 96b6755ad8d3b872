#include "train/config/schema_key.h"

namespace tapeformer {

const KeyCondition* SchemaKey::find_unmet_condition(const Config& config) const {
  for (const KeyCondition& condition : scope)
    if (!condition.is_met(config)) return &condition;
  return nullptr;
}

std::string SchemaKey::explain_unused_by(ConfigPurpose purpose) const {
  const OptionUse use = spec.use;
  if (purpose == ConfigPurpose::training || use == OptionUse::model) return "";
  const bool is_measured = (table_name == "model" && !spec.name.starts_with("init")) ||
                           table_name == "optimizer" || name() == "data.batch_size";
  if (purpose == ConfigPurpose::benchmark && is_measured) return "";
  if (use == OptionUse::process && spec.name != "name")
    return "has an effect in training only; use --" + spec.name;
  if (use == OptionUse::process || use == OptionUse::training) return "has an effect in training only";
  if (purpose == ConfigPurpose::evaluation) return "";
  if (use == OptionUse::features && purpose == ConfigPurpose::transcription) return "";
  return "belongs to data sets, and this command reads no data set";
}

}  // namespace tapeformer
