#include "train/reproduce/table_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/system/machine.h"
#include "core/system/printable.h"
#include "train/reproduce/provenance.h"

namespace tapeformer {
namespace {

constexpr char kNotRun[] = "not run", kNoValue[] = "–";

// The stored results of a row. `known[i]` is the JSON object that ResultStore::get() returns for the row and
// `seeds[i]`.
struct RowResults {
  std::vector<int64_t> seeds;
  std::vector<Json> known;
};

RowResults collect_results(const Row& row, const ResultStore& store) {
  RowResults results{store.list_seeds(row), {}};
  for (const int64_t seed : results.seeds) results.known.push_back(store.get(row, seed));
  return results;
}

double compute_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns the sample standard deviation, or 0 for one value.
double spread_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = compute_mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

const double* find(const NamedValues& values, const std::string& name) {
  for (const auto& [key, value] : values)
    if (key == name) return &value;
  return nullptr;
}

// Returns the command with its options, as words of a POSIX shell.
std::string command_text(const Reproduction& reproduction, const ReproductionOptions& options) {
  std::string text = concat_text("tapeformer reproduce ", reproduction.name, " --scale ",
                                 list_table_scale_names()[static_cast<size_t>(options.scale)]);
  if (!options.device.is_cpu()) text += " --device " + options.device_name();
  for (const std::string& set : options.all_config_settings) text += " --set " + quote_shell_word(set);
  return text;
}

// Returns the command-line option " --seeds S1,S2,…" with all seeds, or "" if there are no seeds.
template <class Seeds>
std::string seeds_option(const Seeds& seeds) {
  std::string text;
  for (const int64_t seed : seeds) text += (text.empty() ? "" : ",") + std::to_string(seed);
  return text.empty() ? "" : " --seeds " + text;
}

// Returns the cell of table.json for a column of a row. `results` contains the results of the row. The
// entries commit, machine, threads and date of the cell come from the last seed that has a result.
// make_row_json() adds the entries paper, command and config to the cell.
Json make_cell(const Measurement& measurement, const Column& column, const RowResults& results) {
  Json cell = {{"status", kNotRun}, {"values", Json::array()}, {"mean", nullptr}, {"spread", nullptr}};
  std::vector<double> values;
  for (size_t i = 0; i < results.seeds.size(); ++i) {
    const auto entry = results.known[i].find(measurement.name);
    const auto training = results.known[i].find(kTrainingEntry);
    const bool no_training = training != results.known[i].end() && training->contains("error");
    if (entry == results.known[i].end() && !no_training) continue;
    const Json& result = no_training ? *training : *entry;
    for (const char* key : {"commit", "machine", "threads", "date"})
      if (result.contains(key)) cell[key] = result[key];
    if (result.contains("error")) {
      cell["status"] = "failed";
      cell["error"] = result["error"];
    } else if (const Json texts = result.value("texts", Json::object()); texts.contains(column.name)) {
      cell["status"] = "measured";
      cell["text"] = texts[column.name];
    } else if (const Json value = result.value("values", Json::object()).value(column.name, Json());
               value.is_number()) {
      values.push_back(value.get<double>());
      cell["values"].push_back({{"seed", results.seeds[i]}, {"value", values.back()}});
    }
  }
  if (values.empty()) return cell;
  cell["status"] = "measured";
  cell["mean"] = compute_mean(values);
  if (values.size() > 1) cell["spread"] = spread_of(values);
  return cell;
}

const std::string& line_of(const Row& row) {
  return row.line_name.empty() ? row.name : row.line_name;
}

Json list_trainings(const Row& row, const RowResults& results) {
  Json trainings = Json::array();
  for (size_t i = 0; i < results.seeds.size(); ++i) {
    const auto entry = results.known[i].find(kTrainingEntry);
    if (entry == results.known[i].end()) continue;
    Json training = {{"seed", results.seeds[i]}, {"run", "runs/" + make_run_name(row, results.seeds[i])}};
    training.update(*entry);
    trainings.push_back(training);
  }
  return trainings;
}

// The longest time of a seed, for the training and the measurements.
double find_longest_seconds(const RowResults& results) {
  double longest = 0;
  for (const Json& known : results.known) {
    double seconds = 0;
    for (const auto& [name, entry] : known.items())
      if (name != kTestEvaluationEntry && entry.contains("seconds") && entry["seconds"].is_number())
        seconds += entry["seconds"].get<double>();
    longest = std::max(longest, seconds);
  }
  return longest;
}

Json make_row_json(const Table& table, const Row& row, const RowResults& results,
                   const std::string& command) {
  Json json = {{"name", row.name}};
  if (!row.config_path.empty()) json["config"] = "configs/" + row.config_path;
  Json settings = row.default_settings;
  for (const std::string& set : row.fixed_settings) settings.push_back(set);
  json["settings"] = settings;
  json["line"] = line_of(row);
  json["command"] = command + " --rows " + row.name + seeds_option(results.seeds);
  json["seconds"] = find_longest_seconds(results);
  if (table.needs_training && row.is_trained) json["trainings"] = list_trainings(row, results);
  Json& cells = json["cells"] = Json::object();
  for (const Measurement& measurement : table.measurements)
    for (const Column& column : measurement.columns) {
      const double* const paper = find(row.paper_values, column.name);
      if (!applies_to_row(measurement, row) && !paper) continue;
      Json& cell = cells[column.name] = make_cell(measurement, column, results);
      cell["paper"] = paper ? Json(*paper) : Json();
      cell["command"] = json["command"];
      if (json.contains("config")) cell["config"] = json["config"];
    }
  return json;
}

// The x and y values of one point of a curve, with one element for each seed. x differs between seeds if x is
// a measured time.
struct SeedPoints {
  std::vector<double> x, y;
};

Json collect_curves(const Table& table, const Figure& figure, const std::vector<RowResults>& all) {
  Json series = Json::array();
  std::vector<std::string> names;
  std::map<std::string, std::vector<SeedPoints>> points;
  for (const RowResults& results : all)
    for (const Json& known : results.known)
      for (const Measurement& measurement : table.measurements) {
        const auto entry = known.find(measurement.name);
        if (entry == known.end() || !entry->contains("curves")) continue;
        for (const Json& curve : (*entry)["curves"]) {
          if (curve["figure"] != figure.name) continue;
          const auto name = curve["name"].get<std::string>();
          if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
          std::vector<SeedPoints>& means = points[name];
          means.resize(std::max(means.size(), curve["points"].size()));
          for (size_t i = 0; i < curve["points"].size(); ++i) {
            const Json& point = curve["points"][i];
            if (!point[1].is_number()) continue;
            means[i].x.push_back(point[0].get<double>());
            means[i].y.push_back(point[1].get<double>());
          }
        }
      }
  for (const std::string& name : names) {
    Json means = Json::array(), errors = Json::array();
    for (const auto& [x, y] : points[name]) {
      if (y.empty()) continue;
      means.push_back({compute_mean(x), compute_mean(y)});
      errors.push_back(spread_of(y));
    }
    series.push_back({{"name", name}, {"points", means}, {"errors", errors}});
  }
  return series;
}

// Returns the first cell in a column among the rows that a printed line shows, or null if none of these rows
// has a cell in the column.
const Json* find_cell(const Json& rows, const std::string& line, const std::string& column) {
  for (const Json& row : rows)
    if (row["line"] == line)
      if (const auto cell = row["cells"].find(column); cell != row["cells"].end()) return &*cell;
  return nullptr;
}

// Returns the names of the lines of the printed table, in the order of the rows.
std::vector<std::string> lines_of(const Json& rows) {
  std::vector<std::string> lines;
  for (const Json& row : rows)
    if (const auto line = row["line"].get<std::string>();
        std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(line);
  return lines;
}

// Returns a JSON array with one circle for each line of the printed table that has a value in each of the
// columns x, y and area.
Json collect_circles(const Json& rows, const CircleColumns& columns) {
  Json series = Json::array();
  const auto value = [](const Json* cell, const char* key) {
    return cell && cell->at(key).is_number() ? std::optional(cell->at(key).get<double>()) : std::nullopt;
  };
  for (const std::string& line : lines_of(rows)) {
    const Json* const y_cell = find_cell(rows, line, columns.y);
    const auto x = value(find_cell(rows, line, columns.x), "mean"), y = value(y_cell, "mean"),
               area = value(find_cell(rows, line, columns.area), "mean");
    if (x && y && area)
      series.push_back({{"name", line},
                        {"points", Json::array({Json::array({*x, *y})})},
                        {"errors", Json::array({value(y_cell, "spread").value_or(0)})},
                        {"area", *area}});
  }
  return series;
}

Json make_figure_json(const Table& table, const Figure& figure, const std::vector<RowResults>& all,
                      const Json& rows) {
  const auto axis = [](const Axis& a) {
    return Json{{"label", a.label}, {"scale", get_scale_name(a.scale)}};
  };
  Json json = {{"name", figure.name},
               {"title", figure.title},
               {"x", axis(figure.x)},
               {"y", axis(figure.y)},
               {"series", figure.circles ? collect_circles(rows, *figure.circles)
                                         : collect_curves(table, figure, all)}};
  if (figure.circles) json["area_label"] = figure.circles->area_unit;
  return json;
}

// Returns the number with `digits` digits after the decimal point. Numbers of more than 15 digits have an
// exponent.
std::string number_text(double number, int digits) {
  return std::abs(number) < 1e15 ? fmt::format("{:.{}f}", number, digits) : fmt::format("{:.6g}", number);
}

std::string cell_text(const Json& cell, int digits) {
  if (cell["status"] == "failed") return "failed";
  if (cell["status"] != "measured") return kNotRun;
  if (cell.contains("text")) return cell["text"].get<std::string>();
  std::string text = number_text(cell["mean"].get<double>(), digits);
  if (cell["spread"].is_number()) text += " ± " + number_text(cell["spread"].get<double>(), digits);
  return text;
}

// Returns the header and the lines of the printed table. Each printed column contains the measured values. A
// second column with the published values follows each column for which values have been published.
Json make_printed_table(const Json& json) {
  Json header = Json::array({""}), lines = Json::array();
  std::vector<std::pair<Json, bool>> columns;  // column, and whether its published values are printed
  for (const Json& column : json["columns"]) {
    if (!column["printed"].get<bool>()) continue;
    const bool paper = std::any_of(json["rows"].begin(), json["rows"].end(), [&](const Json& row) {
      const auto cell = row["cells"].find(column["name"].get<std::string>());
      return cell != row["cells"].end() && cell->at("paper").is_number();
    });
    columns.emplace_back(column, paper);
    header.push_back(column["label"]);
    if (paper) header.push_back(json["reference"]);
  }
  for (const std::string& name : lines_of(json["rows"])) {
    Json line = Json::array({name});
    for (const auto& [column, paper] : columns) {
      const Json* const cell = find_cell(json["rows"], name, column["name"].get<std::string>());
      line.push_back(cell ? cell_text(*cell, column["digits"].get<int>()) : kNoValue);
      if (paper)
        line.push_back(cell && cell->at("paper").is_number()
                           ? fmt::format("{:.6g}", cell->at("paper").get<double>())
                           : kNoValue);
    }
    lines.push_back(line);
  }
  return {{"header", header}, {"rows", lines}};
}

}  // namespace

bool applies_to_row(const Measurement& measurement, const Row& row) {
  return measurement.row_names.empty() ||
         std::find(measurement.row_names.begin(), measurement.row_names.end(), row.name) !=
             measurement.row_names.end();
}

Json make_table_json(const Reproduction& reproduction, const Table& table, const ReproductionOptions& options,
                     const ResultStore& store) {
  const std::string command = command_text(reproduction, options);
  Json json = {{"table", reproduction.name},
               {"title", table.title},
               {"source", table.source},
               {"notes", table.notes},
               {"reference", table.reference_label},
               {"scale", list_table_scale_names()[static_cast<size_t>(options.scale)]},
               {"settings", options.all_config_settings},
               {"device", options.device_name()},
               {"version", get_build_info().version}};
  json.update(collect_provenance());
  Json& columns = json["columns"] = Json::array();
  for (const Measurement& measurement : table.measurements)
    for (const Column& column : measurement.columns)
      columns.push_back({{"name", column.name},
                         {"label", column.label},
                         {"digits", column.decimal_places},
                         {"printed", column.is_printed}});
  std::vector<RowResults> all;
  std::set<int64_t> seeds;
  Json& rows = json["rows"] = Json::array();
  for (const Row& row : table.rows) {
    all.push_back(collect_results(row, store));
    rows.push_back(make_row_json(table, row, all.back(), command));
    seeds.insert(all.back().seeds.begin(), all.back().seeds.end());
  }
  json["command"] = command + seeds_option(seeds);
  Json& figures = json["figures"] = Json::array();
  for (const Figure& figure : table.figures)
    figures.push_back(make_figure_json(table, figure, all, json["rows"]));
  Json& pictures = json["pictures"] = Json::array();
  for (const RowResults& results : all)
    for (const Json& known : results.known)
      for (const Json& entry : known)
        for (const Json& picture : entry.value("pictures", Json::array())) pictures.push_back(picture);
  json["printed"] = make_printed_table(json);
  return json;
}

}  // namespace tapeformer
