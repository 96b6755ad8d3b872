#include <algorithm>
#include <optional>

#include "train/config/layers.h"
#include "train/config/problems.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

// Returns the attention kind that a layer sets. Returns "" for a value of another type, which is reported
// elsewhere.
std::optional<std::string> kind_in(const ConfigLayer& layer) {
  std::optional<std::string> kind;
  for (const auto& setting : layer.settings) {
    if (setting.name() != "model.attention") continue;
    const auto* text = std::get_if<std::string>(&setting.value.data);
    kind = text ? *text : "";
  }
  return kind;
}

// Returns the attention kind to which the [attention] table of each layer belongs; see apply_attention().
std::vector<std::string> kinds_of(const std::vector<ConfigLayer>& layers, const std::string& default_kind) {
  std::optional<std::string> first;
  for (const auto& layer : layers)
    if (!first) first = kind_in(layer);
  std::string kind = first.value_or(default_kind);
  std::vector<std::string> kinds;
  for (const auto& layer : layers) {
    kind = kind_in(layer).value_or(kind);
    kinds.push_back(kind);
  }
  return kinds;
}

bool has_option(const AttentionCatalogue& catalogue, const std::string& kind, const std::string& key) {
  const auto specs = catalogue.options(kind);
  return std::any_of(specs.begin(), specs.end(), [&](const OptionSpec& spec) { return spec.name == key; });
}

// Checks and applies the table [attention] of layers.
class AttentionApplier {
 public:
  AttentionApplier(const AttentionCatalogue& catalogue, const ConfigReading& reading,
                   const std::vector<SchemaKey>& schema, Config& config, std::vector<ConfigProblem>& problems)
      : catalogue_(catalogue), reading_(reading), schema_(schema), config_(config), problems_(problems) {}

  // Checks the table as options of `kind`, and applies it if `is_final` is true.
  void apply(const ConfigLayer& layer, const std::string& kind, bool is_final) {
    const auto specs = catalogue_.options(kind);
    for (const auto& setting : layer.settings) {
      if (setting.table != "attention") continue;
      const auto spec =
          std::find_if(specs.begin(), specs.end(), [&](auto& s) { return s.name == setting.key; });
      if (spec == specs.end()) {
        report_unknown(setting, kind, specs);
        continue;
      }
      std::string wrong;
      const auto value = typed_value(setting.value, *spec, {}, wrong);
      if (!value)
        problems_.push_back({setting.value_at, setting.name() + ": " + wrong});
      else if (is_final)
        config_.attention.set(setting.key, *value);
    }
  }

 private:
  void report_unknown(const Setting& setting, const std::string& kind, const std::vector<OptionSpec>& specs) {
    // If several configs share the --set options, an option of another kind has no effect.
    const bool shared = reading_.unused == UnusedKeys::ignore && is_set_option(setting.key_at);
    const bool is_of_another_kind =
        std::any_of(catalogue_.names.begin(), catalogue_.names.end(),
                    [&](const std::string& name) { return has_option(catalogue_, name, setting.key); });
    if (shared && is_of_another_kind) return;
    if (!uses_attention(config_)) return;  // no key of [attention] has an effect
    std::vector<std::string> names;
    for (const auto& spec : specs) names.push_back(spec.name);
    problems_.push_back(
        {setting.key_at, unknown_key_text(setting, names, " of attention kind " + quoted(kind), schema_)});
  }

  const AttentionCatalogue& catalogue_;
  const ConfigReading& reading_;
  const std::vector<SchemaKey>& schema_;
  Config& config_;
  std::vector<ConfigProblem>& problems_;
};

}  // namespace

void apply_attention(const std::vector<ConfigLayer>& layers, const AttentionCatalogue& catalogue,
                     const ConfigReading& reading, const std::vector<SchemaKey>& schema, Config& config,
                     std::vector<ConfigProblem>& problems) {
  const std::vector<std::string> kinds = kinds_of(layers, config.model.attention);
  const auto is_known = [&](const std::string& name) {
    return std::find(catalogue.names.begin(), catalogue.names.end(), name) != catalogue.names.end();
  };
  const std::string& final_kind = kinds.back();
  if (is_known(final_kind)) config.attention = OptionValues(catalogue.options(final_kind));
  AttentionApplier applier(catalogue, reading, schema, config, problems);
  for (size_t i = 0; i < layers.size(); ++i)
    if (is_known(kinds[i])) applier.apply(layers[i], kinds[i], kinds[i] == final_kind);
}

}  // namespace tapeformer
