#include "train/reproduce/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "core/system/files.h"

namespace tapeformer {
namespace {

// Objects of table.json, which a user may have written, so that every entry can be missing.
Json find_entry(const Json& object, const char* key) {
  const auto entry = object.is_object() ? object.find(key) : object.end();
  return entry == object.end() ? Json() : *entry;
}

bool has_values(const Json& cell) {
  return find_entry(cell, "status") == "measured";
}

bool is_measured(const Json& row) {
  const Json& cells = row["cells"];
  return std::any_of(cells.begin(), cells.end(), has_values);
}

// Tables of earlier versions state no time of a row, but the times of its trainings.
double find_stated_minutes(const Json& row) {
  double seconds = 0;
  if (const Json stated = find_entry(row, "seconds"); stated.is_number()) seconds = stated.get<double>();
  for (const Json& training : find_entry(row, "trainings"))
    if (const Json one = find_entry(training, "seconds"); one.is_number())
      seconds = std::max(seconds, one.get<double>());
  return seconds / 60;
}

std::vector<double> list_values(const Json& cell) {
  std::vector<double> values;
  for (const Json& one : find_entry(cell, "values"))
    if (const Json value = find_entry(one, "value"); value.is_number()) values.push_back(value.get<double>());
  return values;
}

std::string describe_values(const Json& cell, int decimal_places) {
  if (!has_values(cell)) return find_entry(cell, "status") == "failed" ? "failed" : "not run";
  if (const Json text = find_entry(cell, "text"); text.is_string()) return text.get<std::string>();
  std::string text;
  for (const double value : list_values(cell))
    text += fmt::format("{}{:.{}f}", text.empty() ? "" : ", ", value, decimal_places + 2);
  if (const Json spread = find_entry(cell, "spread"); spread.is_number())
    text += fmt::format(" (spread {:.{}f})", spread.get<double>(), decimal_places + 2);
  return text;
}

bool agrees(const Json& stated, const Json& repeated, double tolerance) {
  if (!has_values(repeated)) return false;
  const std::vector<double> values = list_values(stated), again = list_values(repeated);
  if (values.empty()) return find_entry(stated, "text") == find_entry(repeated, "text");
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  const Json spread = find_entry(stated, "spread");
  return !again.empty() && std::all_of(again.begin(), again.end(), [&](double value) {
    const double outside = std::max({*smallest - value, value - *largest, 0.0});
    const double stated_spread = spread.is_number() ? spread.get<double>() : 0;
    const double allowed =
        stated_spread > 0 ? stated_spread : tolerance * std::max(std::abs(*smallest), std::abs(*largest));
    return outside <= allowed;
  });
}

const Json* find_row(const Json& table, const std::string& name) {
  for (const Json& row : table["rows"])
    if (row["name"] == name) return &row;
  return nullptr;
}

bool is_valid_row(const Json& row) {
  return find_entry(row, "name").is_string() && find_entry(row, "cells").is_object() &&
         std::all_of(row["cells"].begin(), row["cells"].end(),
                     [](const Json& cell) { return cell.is_object(); });
}

int64_t find_first_seed(const Json& row) {
  for (const Json& cell : row["cells"])
    for (const Json& one : find_entry(cell, "values"))
      if (const Json seed = find_entry(one, "seed"); seed.is_number_integer()) return seed.get<int64_t>();
  return 1;
}

bool contains_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

StatedTable read_stated_table(const std::filesystem::path& path, const Reproduction& reproduction) {
  const Json table = Json::parse(read_file(path.string()), nullptr, false);
  const auto malformed = [&](const std::string& problem) {
    return DataError(path.string() + ": " + problem + ", expected a table.json of a reproduction");
  };
  if (!table.is_object()) throw malformed("no JSON object");
  if (const Json name = find_entry(table, "table"); name != reproduction.name)
    throw name.is_string()
        ? ConfigError(concat_text(path.string(), " is a result of ", name.get<std::string>(), ", and not of ",
                                  reproduction.name))
        : throw malformed("no name of a table");
  const Json rows = find_entry(table, "rows"), settings = find_entry(table, "settings");
  if (!rows.is_array() || !std::all_of(rows.begin(), rows.end(), is_valid_row)) throw malformed("no rows");
  if (!settings.is_array() ||
      !std::all_of(settings.begin(), settings.end(), [](const Json& one) { return one.is_string(); }))
    throw malformed("no settings");
  const auto& scales = list_table_scale_names();
  const Json scale = find_entry(table, "scale");
  if (!scale.is_string() || !contains_name(scales, scale.get<std::string>())) throw malformed("no scale");
  return {path.string(), table};
}

void apply_stated_settings(const StatedTable& stated, ReproductionOptions& options) {
  const auto& scales = list_table_scale_names();
  const auto scale = std::find(scales.begin(), scales.end(), stated.table["scale"].get<std::string>());
  options.scale = static_cast<TableScale>(scale - scales.begin());
  options.overrides.config_settings = stated.table["settings"].get<std::vector<std::string>>();
}

std::vector<std::string> select_verified_rows(const StatedTable& stated, const Reproduction& reproduction,
                                              const VerificationOptions& verification,
                                              ReproductionOptions& options) {
  std::vector<std::string> names, skipped;
  for (const Row& row : reproduction.make_table(options).rows) {
    const Json* const found = find_row(stated.table, row.name);
    if (!options.row_names.empty() && !contains_name(options.row_names, row.name)) continue;
    if (!found || !is_measured(*found)) {
      skipped.push_back(row.name + ": has no stated values");
    } else if (const double minutes = find_stated_minutes(*found); minutes > verification.max_minutes) {
      skipped.push_back(fmt::format("{}: takes {:.1f} minutes", row.name, minutes));
    } else {
      const int64_t seed = find_first_seed(*found);
      if (options.seeds.empty()) options.seeds = {seed};
      if (names.empty() || options.seeds.front() == seed)
        names.push_back(row.name);
      else
        skipped.push_back(concat_text(row.name, ": has no stated values of seed ", options.seeds.front()));
    }
  }
  if (names.empty())
    throw ConfigError(
        fmt::format("{}: no row was measured in at most {:g} minutes, so nothing can be compared",
                    stated.path, verification.max_minutes));
  options.row_names = names;
  return skipped;
}

Verification compare_tables(const StatedTable& stated, const Json& repeated, const Reproduction& reproduction,
                            const VerificationOptions& verification, const ReproductionOptions& options) {
  std::vector<Report> cells;
  int64_t equal = 0, different = 0, speeds = 0;
  for (const Measurement& measurement : reproduction.make_table(options).measurements)
    for (const Column& column : measurement.columns)
      for (const std::string& name : options.row_names) {
        const Json* const old_row = find_row(stated.table, name);
        const Json* const new_row = find_row(repeated, name);
        const Json old_cell = old_row ? find_entry((*old_row)["cells"], column.name.c_str()) : Json();
        const Json new_cell = new_row ? find_entry((*new_row)["cells"], column.name.c_str()) : Json();
        if (!has_values(old_cell)) continue;
        const bool agree = agrees(old_cell, new_cell, verification.tolerance);
        int64_t& count = column.is_speed ? speeds : agree ? equal : different;
        ++count;
        cells.push_back(Report()
                            .add("row", name)
                            .add("column", column.name)
                            .add("stated", describe_values(old_cell, column.decimal_places))
                            .add("repeated", describe_values(new_cell, column.decimal_places))
                            .add("result", std::string(column.is_speed ? "not compared"
                                                       : agree         ? "agrees"
                                                                       : "differs")));
      }
  return {Report()
              .add("cells", cells)
              .add("agree", equal)
              .add("differ", different)
              .add("speeds_not_compared", speeds),
          different};
}

}  // namespace tapeformer
