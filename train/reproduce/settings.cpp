// Settings of `tapeformer reproduce --set`. Each reproduction declares the settings that it takes.
#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "train/build.h"
#include "train/config/parse.h"
#include "train/config/value.h"
#include "train/reproduce/reproduce.h"

namespace tapeformer {
namespace {

constexpr const char* kMeasure = "measure";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Setting parse_one(const std::string& set) {
  std::vector<ConfigProblem> problems;
  const ConfigLayer layer = parse_set_options({set}, problems);
  if (!problems.empty()) throw ConfigError(problems[0].position.to_string() + ": " + problems[0].message);
  return layer.settings.front();
}

ConfigError make_setting_error(const Setting& setting, const std::string& message) {
  return ConfigError("--set " + setting.name() + ": " + message);
}

void set_measure(const Reproduction& reproduction, const Setting& setting, OptionValues& measure) {
  for (const OptionSpec& spec : reproduction.measurement_options) {
    if (spec.name != setting.key) continue;
    std::string problem;
    const auto value = convert_to_option_value(setting.value, spec, problem);
    if (!value) throw make_setting_error(setting, problem);
    return measure.set(spec.name, *value);
  }
}

bool is_measure(const Reproduction& reproduction, const Setting& setting) {
  return setting.table_name == kMeasure &&
         std::any_of(reproduction.measurement_options.begin(), reproduction.measurement_options.end(),
                     [&](auto& spec) { return spec.name == setting.key; });
}

// Returns a message that suggests the nearest setting, or lists the settings that the reproduction takes.
std::string taken_settings(const Reproduction& reproduction, const Setting& setting) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : reproduction.measurement_options) names.push_back(spec.name);
  const std::string near = find_nearest_name(setting.key, names);
  std::string text = "\"" + reproduction.name + "\" does not take this setting";
  if (!near.empty()) return text + concat_text("; did you mean ", kMeasure, ".", near, "?");
  text += "; it takes";
  for (const std::string& name : names) text += concat_text(" ", kMeasure, ".", name);
  for (const std::string& name : reproduction.config_keys) text += " " + name;
  return text;
}

}  // namespace

std::vector<std::string> list_training_config_tables() {
  return {"run", "data", "model", "attention", "optimizer", "schedule", "train"};
}

void extract_measurement_options(const Reproduction& reproduction, ReproductionOptions& options) {
  options.measurement_options = OptionValues(reproduction.measurement_options);
  options.all_config_settings = options.overrides.config_settings;
  for (const std::string& set : std::exchange(options.overrides.config_settings, {})) {
    const Setting setting = parse_one(set);
    const std::string name = setting.name();
    if (is_measure(reproduction, setting)) {
      set_measure(reproduction, setting, options.measurement_options);
    } else if (name == "run.device" || name == "run.threads" || name == "run.seed") {
      throw make_setting_error(setting, "use --" + setting.key);
    } else if (name == "run.name" || contains(reproduction.reserved_keys, name)) {
      throw make_setting_error(setting, "the reproduction sets " + name + " itself");
    } else {
      // If `taken` contains "train", the reproduction trains models and supports all config keys. If all
      // config keys are supported, load_config() checks whether the key exists.
      const auto& taken = reproduction.config_keys;
      if (!contains(taken, name) && !contains(taken, setting.table_name) && !contains(taken, "train"))
        throw make_setting_error(setting, taken_settings(reproduction, setting));
      options.overrides.config_settings.push_back(set);
    }
  }
}

std::string find_config_setting_value(const ReproductionOptions& options, const std::string& key) {
  const char* const kBlanksAndQuotes = " \t\"'";
  std::string value;
  for (const std::string& set : options.overrides.config_settings) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || set.substr(0, set.find_first_of(" \t=")) != key) continue;
    const size_t first = set.find_first_not_of(kBlanksAndQuotes, equals + 1);
    value = first == std::string::npos
                ? ""
                : set.substr(first, set.find_last_not_of(kBlanksAndQuotes) - first + 1);
  }
  return value;
}

Config make_row_config(const ReproductionOptions& options, const Row& row, int64_t seed,
                       const std::vector<std::string>& settings) {
  std::vector<std::string> all = row.default_settings;
  for (const auto* more : {&options.overrides.config_settings, &row.fixed_settings, &settings})
    all.insert(all.end(), more->begin(), more->end());
  const std::string file = row.config_path.empty() ? "" : (options.config_folder / row.config_path).string();
  Config config = load_config(
      file, all, {.unused_key_policy = UnusedKeyPolicy::ignore, .device = options.overrides.device});
  config.run.name = row.name;
  options.overrides.apply(config);
  config.run.seed = seed;
  return config;
}

void check_settings(const ReproductionOptions& options, const std::vector<Row>& rows) {
  std::vector<Config> configs;
  for (const Row& row : rows) configs.push_back(make_row_config(options, row, 1));
  for (const std::string& set : options.overrides.config_settings) {
    const Setting setting = parse_one(set);
    std::vector<std::string> reasons;
    for (const Config& config : configs) {
      const std::string reason = explain_unused_key(config, setting.name());
      if (!reason.empty()) reasons.push_back(reason);
    }
    if (reasons.size() == configs.size()) throw make_setting_error(setting, reasons.front());
  }
}

}  // namespace tapeformer
