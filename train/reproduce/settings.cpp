// Settings of `tapeformer reproduce --set`. Each reproduction declares the settings that it takes.
#include <algorithm>
#include <utility>

#include "core/errors.h"
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
  if (!problems.empty()) throw ConfigError(problems[0].where.text() + ": " + problems[0].message);
  return layer.settings.front();
}

ConfigError wrong(const Setting& setting, const std::string& message) {
  return ConfigError("--set " + setting.name() + ": " + message);
}

void set_measure(const Reproduction& reproduction, const Setting& setting, OptionValues& measure) {
  for (const OptionSpec& spec : reproduction.measure) {
    if (spec.name != setting.key) continue;
    std::string problem;
    const auto value = typed_value(setting.value, spec, {}, problem);
    if (!value) throw wrong(setting, problem);
    return measure.set(spec.name, *value);
  }
}

bool is_measure(const Reproduction& reproduction, const Setting& setting) {
  return setting.table == kMeasure && std::any_of(reproduction.measure.begin(), reproduction.measure.end(),
                                                  [&](auto& spec) { return spec.name == setting.key; });
}

// Returns a message that suggests the nearest setting, or lists the settings that the reproduction takes.
std::string taken_settings(const Reproduction& reproduction, const Setting& setting) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : reproduction.measure) names.push_back(spec.name);
  const std::string near = find_nearest_name(setting.key, names);
  std::string text = "\"" + reproduction.name + "\" does not take this setting";
  if (!near.empty()) return text + concat_text("; did you mean ", kMeasure, ".", near, "?");
  text += "; it takes";
  for (const std::string& name : names) text += concat_text(" ", kMeasure, ".", name);
  for (const std::string& name : reproduction.config_keys) text += " " + name;
  return text;
}

}  // namespace

std::vector<std::string> training_keys() {
  return {"run", "data", "model", "attention", "optimizer", "schedule", "train"};
}

void read_settings(const Reproduction& reproduction, ReproductionOptions& options) {
  options.measure = OptionValues(reproduction.measure);
  options.given_sets = options.overrides.sets;
  for (const std::string& set : std::exchange(options.overrides.sets, {})) {
    const Setting setting = parse_one(set);
    const std::string name = setting.name();
    if (is_measure(reproduction, setting)) {
      set_measure(reproduction, setting, options.measure);
    } else if (name == "run.device" || name == "run.threads" || name == "run.seed") {
      throw wrong(setting, "use --" + setting.key);
    } else if (name == "run.name" || contains(reproduction.own_keys, name)) {
      throw wrong(setting, "the reproduction sets " + name + " itself");
    } else {
      // A reproduction that takes the table [train] takes all tables; load_config() then reports unknown
      // tables.
      const auto& taken = reproduction.config_keys;
      if (!contains(taken, name) && !contains(taken, setting.table) && !contains(taken, "train"))
        throw wrong(setting, taken_settings(reproduction, setting));
      options.overrides.sets.push_back(set);
    }
  }
}

std::string set_value(const ReproductionOptions& options, const std::string& key) {
  const char* const kBlanksAndQuotes = " \t\"'";
  std::string value;
  for (const std::string& set : options.overrides.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || set.substr(0, set.find_first_of(" \t=")) != key) continue;
    const size_t first = set.find_first_not_of(kBlanksAndQuotes, equals + 1);
    value = first == std::string::npos
                ? ""
                : set.substr(first, set.find_last_not_of(kBlanksAndQuotes) - first + 1);
  }
  return value;
}

Config config_of(const ReproductionOptions& options, const Row& row, int64_t seed,
                 const std::vector<std::string>& settings) {
  std::vector<std::string> all = row.defaults;
  for (const auto* more : {&options.overrides.sets, &row.fixed, &settings})
    all.insert(all.end(), more->begin(), more->end());
  const std::string file = row.config.empty() ? "" : (options.configs / row.config).string();
  Config config = load_config(file, all, attention_catalogue(),
                              {.unused = UnusedKeys::ignore, .device = options.overrides.device});
  config.run.name = row.name;
  options.overrides.apply(config);
  config.run.seed = seed;
  return config;
}

void check_settings(const ReproductionOptions& options, const std::vector<Row>& rows) {
  std::vector<Config> configs;
  for (const Row& row : rows) configs.push_back(config_of(options, row, 1));
  for (const std::string& set : options.overrides.sets) {
    const Setting setting = parse_one(set);
    std::vector<std::string> reasons;
    for (const Config& config : configs) {
      const std::string reason = why_unused(config, setting.name(), attention_catalogue());
      if (!reason.empty()) reasons.push_back(reason);
    }
    if (reasons.size() == configs.size()) throw wrong(setting, reasons.front());
  }
}

}  // namespace tapeformer
