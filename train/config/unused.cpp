#include "train/config/unused.h"

#include <algorithm>

#include "core/system/log.h"
#include "train/config/layers.h"

namespace tapeformer {
namespace {

const SchemaKey* find_key(const std::vector<SchemaKey>& schema, const Setting& setting) {
  const auto found = std::find_if(schema.begin(), schema.end(),
                                  [&](const SchemaKey& k) { return k.name() == setting.name(); });
  return found == schema.end() ? nullptr : &*found;
}

void check_file(const UserSettings& layers, const std::vector<SchemaKey>& schema,
                std::vector<ConfigProblem>& problems) {
  for (const Setting& setting : layers.file_layer.settings) {
    const SchemaKey* key = find_key(schema, setting);
    if (!key && setting.table_name != "attention") continue;
    if (key && key->is_default(layers.file_config)) continue;
    // The keys of [attention] are not in the schema. These keys have an effect if and only if model.attention
    // has an effect.
    const std::string name = key ? setting.name() : "model.attention";
    const std::string reason = explain_unused_key(layers.config, name);
    if (reason.empty()) continue;
    if (explain_unused_key(layers.file_config, name).empty())
      log_warning(setting.key_position.to_string(), ": ", setting.name(), " has no effect: it ", reason);
    else
      problems.push_back({setting.key_position, setting.name() + ": " + reason});
  }
}

void check_sets(const UserSettings& layers, ConfigPurpose purpose, const std::vector<SchemaKey>& schema,
                std::vector<ConfigProblem>& problems) {
  for (const Setting& setting : layers.set_option_layer.settings) {
    const SchemaKey* key = find_key(schema, setting);
    if (!key && setting.table_name != "attention") continue;
    // A --set option that resets a key of the file to its default is allowed even if the key has no effect.
    if (key && key->is_default(layers.config) && !key->is_default(layers.file_config)) continue;
    std::string reason = explain_unused_key(layers.config, key ? setting.name() : "model.attention");
    if (key && reason.empty()) reason = key->explain_unused_by(purpose);
    if (!reason.empty()) problems.push_back({setting.key_position, setting.name() + ": " + reason});
  }
}

}  // namespace

void check_unused_keys(const UserSettings& layers, const ConfigLoadOptions& options,
                       const std::vector<SchemaKey>& schema, std::vector<ConfigProblem>& problems) {
  if (options.unused_key_policy == UnusedKeyPolicy::ignore) return;
  if (options.unused_key_policy == UnusedKeyPolicy::refuse) check_file(layers, schema, problems);
  check_sets(layers, options.purpose, schema, problems);
}

void reset_unused_keys(Config& config, const std::vector<SchemaKey>& schema) {
  // Resetting a key may remove the effect of other keys, so the loop repeats until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (const SchemaKey& key : schema) {
      if (!key.find_unmet_condition(config) || key.is_default(config)) continue;
      key.reset(config);
      changed = true;
    }
  }
  // Values equal to the default are not stored, so that equal configs compare equal.
  for (const SchemaKey& key : schema)
    if (key.is_default(config)) key.reset(config);
  if (!uses_attention(config)) config.attention = make_default_attention_tables(config.model.attention);
}

}  // namespace tapeformer
