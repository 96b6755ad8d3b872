#include "train/reproduce/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

bool has_values(const Json& cell) {
  return cell.value("status", "") == "measured";
}

// Returns the cell of a row and a column, or an empty object.
Json find_cell(const Json& table, const std::string& row_name, const std::string& column) {
  for (const Json& row : table.at("rows"))
    if (row.at("name") == row_name) return row.at("cells").value(column, Json::object());
  return Json::object();
}

// Tables of earlier versions state no time of a row, but the times of its trainings.
double find_stated_minutes(const Json& row) {
  double seconds = row.value("seconds", 0.0);
  for (const Json& training : row.value("trainings", Json::array()))
    seconds = std::max(seconds, training.value("seconds", 0.0));
  return seconds / 60;
}

std::vector<double> list_values(const Json& cell) {
  std::vector<double> values;
  for (const Json& one : cell.value("values", Json::array())) values.push_back(one.at("value").get<double>());
  return values;
}

double find_spread(const Json& cell) {
  const Json spread = cell.value("spread", Json());
  return spread.is_null() ? 0 : spread.get<double>();
}

std::string describe_values(const Json& cell, int64_t digits) {
  if (!has_values(cell)) return cell.value("status", "not run");
  if (cell.contains("text")) return cell.at("text").get<std::string>();
  std::string text;
  for (const double value : list_values(cell))
    text += fmt::format("{}{:.{}f}", text.empty() ? "" : ", ", value, digits + 2);
  if (const double spread = find_spread(cell); spread > 0)
    text += fmt::format(" (spread {:.{}f})", spread, digits + 2);
  return text;
}

bool agrees(const Json& stated, const Json& repeated, double tolerance) {
  if (!has_values(repeated)) return false;
  const std::vector<double> values = list_values(stated), again = list_values(repeated);
  if (values.empty()) return stated.value("text", "") == repeated.value("text", "");
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  const double spread = find_spread(stated);
  const double allowed = spread > 0 ? spread : tolerance * std::max(std::abs(*smallest), std::abs(*largest));
  return !again.empty() && std::all_of(again.begin(), again.end(), [&](double value) {
    return std::max({*smallest - value, value - *largest, 0.0}) <= allowed;
  });
}

int64_t find_first_seed(const Json& row) {
  for (const Json& cell : row.at("cells"))
    for (const Json& one : cell.value("values", Json::array())) return one.at("seed").get<int64_t>();
  return 1;
}

}  // namespace

StatedTable read_stated_table(const std::filesystem::path& path, const std::string& table_name) {
  StatedTable stated{.path = path.string(), .table = {}, .settings = {}, .scale = {}};
  std::string name;
  try {
    stated.table = Json::parse(read_file(path.string()));
    stated.table.at("table").get_to(name);
    stated.table.at("settings").get_to(stated.settings);
    stated.table.at("scale").get_to(stated.scale);
    for (const Json& row : stated.table.at("rows")) {
      row.at("name").get_ref<const std::string&>();
      find_stated_minutes(row);
      find_first_seed(row);
      for (const Json& cell : row.at("cells")) describe_values(cell, 0);
    }
  } catch (const Json::exception& error) {
    throw DataError(
        concat_text(path.string(), ": ", error.what(), "; expected a table.json of a reproduction"));
  }
  if (name != table_name)
    throw ConfigError(concat_text(path.string(), " is a result of ", name, ", and not of ", table_name));
  if (!is_listed(list_table_scales(), stated.scale))
    throw DataError(path.string() + ": unknown scale, expected a table.json of a reproduction");
  return stated;
}

std::vector<std::string> select_verified_rows(const StatedTable& stated, const Table& table,
                                              const VerificationOptions& verification,
                                              ReproductionOptions& options) {
  std::vector<std::string> names, skipped;
  for (const Row& row : table.rows) {
    if (!options.row_names.empty() && !is_listed(options.row_names, row.name)) continue;
    const Json& rows = stated.table.at("rows");
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Json& one) { return one.at("name") == row.name; });
    if (found == rows.end() ||
        std::none_of(found->at("cells").begin(), found->at("cells").end(), has_values)) {
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

Verification compare_tables(const StatedTable& stated, const Json& repeated, const Table& table,
                            const VerificationOptions& verification, const ReproductionOptions& options) {
  std::vector<Report> cells;
  int64_t equal = 0, different = 0, speeds = 0;
  for (const Measurement& measurement : table.measurements)
    for (const Column& column : measurement.columns)
      for (const std::string& name : options.row_names) {
        const Json old_cell = find_cell(stated.table, name, column.name),
                   new_cell = find_cell(repeated, name, column.name);
        if (!has_values(old_cell)) continue;
        const bool agree = agrees(old_cell, new_cell, verification.tolerance);
        ++(column.speed ? speeds : agree ? equal : different);
        const std::string result = column.speed ? "not compared" : agree ? "agrees" : "differs";
        cells.push_back(Report()
                            .add("row", name)
                            .add("column", column.name)
                            .add("stated", describe_values(old_cell, column.digits))
                            .add("repeated", describe_values(new_cell, column.digits))
                            .add("result", result));
      }
  return {Report()
              .add("cells", cells)
              .add("agree", equal)
              .add("differ", different)
              .add("speeds_not_compared", speeds),
          different};
}

}  // namespace tapeformer
