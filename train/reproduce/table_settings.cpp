#include "train/reproduce/table_settings.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/errors.h"
#include "train/config/parse.h"
#include "train/config/value.h"
#include "train/reproduce/measurement_kind.h"

namespace tapeformer {
namespace {

Setting parse_one(const std::string& set) {
  std::vector<ConfigProblem> problems;
  const ConfigLayer layer = parse_set_options({set}, problems);
  if (!problems.empty()) throw ConfigError(problems[0].position.to_string() + ": " + problems[0].message);
  return layer.settings.front();
}

ConfigError make_setting_error(const Setting& setting, const std::string& message) {
  return ConfigError("--set " + setting.name() + ": " + message);
}

// Returns the value of --set measure.NAME. A null value stands for 0, the value of the file.
Json read_measure(const Setting& setting, const Json& default_value) {
  constexpr double kMax = 1 << 24;
  OptionSpec spec{.name = setting.key, .default_value = int64_t{0}, .help = "", .min = 0, .max = kMax};
  if (default_value.is_number_float()) spec.default_value = 0.0;
  std::string problem;
  const auto value = convert_to_option_value(setting.value, spec, problem);
  if (!value) throw make_setting_error(setting, problem);
  const Json number =
      default_value.is_number_float() ? Json(std::get<double>(*value)) : Json(std::get<int64_t>(*value));
  return number == 0 ? Json() : number;
}

// Returns a message that suggests the nearest setting, or lists the settings that the table takes.
std::string describe_taken_settings(const TableFile& file, const std::string& key) {
  Words names;
  for (const auto& [name, help] : list_measure_options(file)) names.push_back(name);
  const std::string near = find_nearest_name(key, names);
  std::string text = "\"" + file.name + "\" does not take this setting";
  if (!near.empty()) return text + "; did you mean measure." + near + "?";
  text += "; it takes";
  for (const std::string& name : names) text += " measure." + name;
  for (const std::string& name : file.contents.value("settable", Words())) text += " " + name;
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> list_measure_options(const TableFile& file) {
  std::vector<std::pair<std::string, std::string>> options;
  const Json measures = file.contents.value("measure", Json::object());
  for (const auto& [name, measure] : measures.items())
    options.emplace_back(name, measure.is_object() ? measure.value("help", "") : "");
  return options;
}

Json take_settings(const TableFile& file, ReproductionOptions& options) {
  const Json contents = select_scale(file.contents, options.scale);
  const Json measure = contents.value("measure", Json::object());
  const Json variables = contents.value("variables", Json::object());
  const Words settable = contents.value("settable", Words()), reserved = contents.value("reserved", Words());
  const bool takes_all = contents.value("trains", true) && settable.empty();
  options.all_config_settings = options.overrides.config_settings;
  Json set_variables = Json::object();
  for (const std::string& set : std::exchange(options.overrides.config_settings, {})) {
    const Setting setting = parse_one(set);
    const std::string name = setting.name();
    if (setting.table_name == "measure" && measure.contains(setting.key)) {
      const Json value = read_measure(setting, measure.at(setting.key).at("value"));
      if (!value.is_null()) set_variables[setting.key] = value;
      continue;
    }
    if (name == "run.device" || name == "run.threads" || name == "run.seed")
      throw make_setting_error(setting, "use --" + setting.key);
    if (name == "run.name" || is_listed(reserved, name))
      throw make_setting_error(setting, "the reproduction sets " + name + " itself");
    if (!takes_all && !is_listed(settable, name) && !is_listed(settable, setting.table_name))
      throw make_setting_error(setting, describe_taken_settings(file, setting.key));
    if (const auto* const text = std::get_if<std::string>(&setting.value.value);
        text && variables.contains(name))
      set_variables[name] = *text;
    options.overrides.config_settings.push_back(set);
  }
  return set_variables;
}

Lookup add_config_keys(Lookup variables, const ReproductionOptions& options, const Row& row) {
  const auto config = std::make_shared<std::optional<Config>>();
  return
      [=, path = row.config_path, settings = row.settings](const std::string& name) -> std::optional<Json> {
        if (const auto found = variables(name)) return found;
        if (name.find('.') == std::string::npos) return std::nullopt;
        if (!*config) *config = make_row_config(options, path, settings, {});
        try {
          const std::string text = format_config_value(**config, name);
          const Json value = Json::parse(text, nullptr, false);
          return value.is_discarded() ? Json(text) : value;
        } catch (const std::out_of_range&) {
          return std::nullopt;  // no config key
        }
      };
}

namespace {

// Throws ConfigError for the first --set option whose config key is not used by any config of `rows`.
void check_settings(const ReproductionOptions& options, const std::vector<Row>& rows) {
  std::vector<Config> configs;
  for (const Row& row : rows)
    configs.push_back(
        make_row_config(options, row.config_path, row.settings, fill_texts(row.fixed, row.variables)));
  for (const std::string& set : options.overrides.config_settings) {
    const Setting setting = parse_one(set);
    Words reasons;
    for (const Config& config : configs) reasons.push_back(explain_unused_key(config, setting.name()));
    if (!is_listed(reasons, "")) throw make_setting_error(setting, reasons.front());
  }
}

// Throws ConfigError if an option of a measurement is invalid or contains an unknown variable.
void check_measurements(const Table& table, const std::vector<Row>& rows) {
  for (const Measurement& measurement : table.measurements)
    for (const Row& row : rows) {
      if (!measurement.applies_to(row)) continue;
      const Json any = {{"x", 1}, {"value", 1}, {"run", "run"}, {"config", "config"}, {"file", "file"}};
      const Lookup variables = make_lookup(any, row.variables);
      read_measurement_options(measurement, variables);
      const std::string text = fill_json(measurement.options, variables).dump();
      if (const size_t at = text.find('{', 1); at != std::string::npos)
        throw ConfigError(concat_text("measurement \"", measurement.name, "\" of the row \"", row.name,
                                      "\": unknown variable ", text.substr(at, text.find('}', at) + 1 - at)));
    }
}

}  // namespace

std::vector<Row> select_rows(const Table& table, const ReproductionOptions& options) {
  Words names;
  std::vector<Row> rows;
  for (const Row& row : table.rows) {
    names.push_back(row.name);
    if (options.row_names.empty() || is_listed(options.row_names, row.name)) rows.push_back(row);
  }
  for (const std::string& name : options.row_names)
    if (!is_listed(names, name)) throw ConfigError("--rows: " + describe_unknown_word("row", name, names));
  check_settings(options, rows);
  check_measurements(table, rows);
  return rows;
}

}  // namespace tapeformer
