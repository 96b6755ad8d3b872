#include "train/reproduce/table_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/system/machine.h"
#include "core/system/printable.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr char kNotRun[] = "not run";

// The stored results of a row: seeds, and the JSON objects that ResultStore::get() returns for them.
using RowResults = std::vector<std::pair<int64_t, Json>>;

double compute_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns the sample standard deviation, or 0 for one value.
double compute_spread(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = compute_mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// Returns the command with its options, as words of a POSIX shell.
std::string make_command_text(const Table& table, const ReproductionOptions& options) {
  std::string text = "tapeformer reproduce " + table.name + " --scale " + options.scale;
  if (options.device != "cpu") text += " --device " + options.device;
  for (const std::string& set : options.all_config_settings) text += " --set " + quote_shell_word(set);
  return text;
}

// Returns the command-line option " --seeds S1,S2,…", or "" if there are no seeds.
std::string make_seeds_text(const std::set<int64_t>& seeds) {
  std::string text;
  for (const int64_t seed : seeds) text += (text.empty() ? " --seeds " : ",") + std::to_string(seed);
  return text;
}

// Returns the cell of table.json for a column of a row. The entries commit, machine, threads and date of the
// cell come from the last seed that has a result. make_row_json() adds the entries paper, command and config.
Json make_cell(const Measurement& measurement, const Column& column, const RowResults& results) {
  Json cell = {{"status", kNotRun}, {"values", Json::array()}, {"mean", nullptr}, {"spread", nullptr}};
  std::vector<double> values;
  for (const auto& [seed, known] : results) {
    const Json training = known.value(kTrainingEntry, Json::object());
    const Json result = training.contains("error") ? training : known.value(measurement.name, Json::object());
    for (const char* key : {"commit", "machine", "threads", "date"})
      if (result.contains(key)) cell[key] = result[key];
    const Json texts = result.value("texts", Json::object());
    const Json value = result.value("values", Json::object()).value(column.name, Json());
    if (result.contains("error")) {
      cell["status"] = "failed";
      cell["error"] = result["error"];
    } else if (texts.contains(column.name)) {
      cell["status"] = "measured";
      cell["text"] = texts[column.name];
    } else if (value.is_number()) {
      values.push_back(value.get<double>());
      cell["values"].push_back({{"seed", seed}, {"value", value}});
    }
  }
  if (values.empty()) return cell;
  cell["status"] = "measured";
  cell["mean"] = compute_mean(values);
  if (values.size() > 1) cell["spread"] = compute_spread(values);
  return cell;
}

// Adds the trainings of a row, and the longest time of a seed, for the training and the measurements.
void add_trainings(const Row& row, const RowResults& results, Json& json) {
  double longest = 0;
  Json trainings = Json::array();
  for (const auto& [seed, known] : results) {
    double seconds = 0;
    for (const Json& entry : known) seconds += entry.value("seconds", 0.0);
    longest = std::max(longest, seconds);
    if (!known.contains(kTrainingEntry)) continue;
    Json training = {{"seed", seed}, {"run", "runs/" + make_run_name(row.name, seed)}};
    training.update(known[kTrainingEntry]);
    training.erase("output");
    trainings.push_back(training);
  }
  json["seconds"] = longest;
  if (row.is_trained) json["trainings"] = trainings;
}

Json make_row_json(const Table& table, const Row& row, const RowResults& results,
                   const std::string& command) {
  Json json = {{"name", row.name}};
  if (!row.config_name.empty()) json["config"] = row.config_name;
  json["settings"] = row.settings;
  for (const std::string& set : fill_texts(row.fixed, row.variables)) json["settings"].push_back(set);
  if (!row.pretraining.empty()) json["pretraining"] = fill_texts(row.pretraining, row.variables);
  json["line"] = row.line;
  std::set<int64_t> seeds;
  for (const auto& [seed, known] : results) seeds.insert(seed);
  json["command"] = command + " --rows " + row.name + make_seeds_text(seeds);
  add_trainings(row, results, json);
  Json& cells = json["cells"] = Json::object();
  for (const Measurement& measurement : table.measurements)
    for (const Column& column : measurement.columns) {
      if (!measurement.applies_to(row)) continue;
      Json& cell = cells[column.name] = make_cell(measurement, column, results);
      const auto published = row.published.find(column.name);
      cell["paper"] = published == row.published.end() ? Json() : Json(published->second);
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

Json collect_curves(const Figure& figure, const std::vector<RowResults>& all) {
  Words names;
  std::map<std::string, std::vector<SeedPoints>> curves;
  for (const RowResults& results : all)
    for (const auto& [seed, known] : results)
      for (const Json& entry : known)
        for (const Json& curve : entry.value("curves", Json::array())) {
          if (curve["figure"] != figure.name) continue;
          const auto name = curve["name"].get<std::string>();
          if (!is_listed(names, name)) names.push_back(name);
          std::vector<SeedPoints>& points = curves[name];
          points.resize(std::max(points.size(), curve["points"].size()));
          for (size_t i = 0; i < curve["points"].size(); ++i) {
            const Json& point = curve["points"][i];
            if (!point[1].is_number()) continue;
            points[i].x.push_back(point[0].get<double>());
            points[i].y.push_back(point[1].get<double>());
          }
        }
  Json series = Json::array();
  for (const std::string& name : names) {
    Json means = Json::array(), errors = Json::array();
    for (const auto& [x, y] : curves[name]) {
      if (y.empty()) continue;
      means.push_back({compute_mean(x), compute_mean(y)});
      errors.push_back(compute_spread(y));
    }
    series.push_back({{"name", name}, {"points", means}, {"errors", errors}});
  }
  return series;
}

// Returns the first cell in a column among the rows that a printed line shows, or an empty object.
Json find_line_cell(const Json& rows, const std::string& line, const std::string& column) {
  for (const Json& row : rows)
    if (row["line"] == line && row["cells"].contains(column)) return row["cells"][column];
  return Json::object();
}

// Returns the names of the lines of the printed table, in the order of the rows.
Words list_lines(const Json& rows) {
  Words lines;
  for (const Json& row : rows)
    if (const std::string line = row["line"]; !is_listed(lines, line)) lines.push_back(line);
  return lines;
}

// Returns a JSON array with one circle for each line of the printed table that has a value in each of the
// columns x, y and area.
Json collect_circles(const Json& rows, const Figure& figure) {
  Json series = Json::array();
  for (const std::string& line : list_lines(rows)) {
    const Json x = find_line_cell(rows, line, figure.circle_x).value("mean", Json()),
               area = find_line_cell(rows, line, figure.circle_area).value("mean", Json()),
               y = find_line_cell(rows, line, figure.circle_y);
    const Json spread = y.value("spread", Json());
    if (x.is_number() && area.is_number() && y.value("mean", Json()).is_number())
      series.push_back({{"name", line},
                        {"points", Json::array({Json::array({x, y["mean"]})})},
                        {"errors", Json::array({spread.is_number() ? spread : Json(0.0)})},
                        {"area", area}});
  }
  return series;
}

Json make_figure_json(const Figure& figure, const std::vector<RowResults>& all, const Json& rows) {
  const auto axis = [](const Axis& a) {
    return Json{{"label", a.label}, {"scale", get_scale_name(a.scale)}};
  };
  const bool has_circles = !figure.circle_x.empty();
  Json json = {{"name", figure.name},
               {"title", figure.title},
               {"x", axis(figure.x)},
               {"y", axis(figure.y)},
               {"series", has_circles ? collect_circles(rows, figure) : collect_curves(figure, all)}};
  if (has_circles) json["area_label"] = figure.area_unit;
  return json;
}

// Returns the number with `digits` digits after the decimal point. Numbers of more than 15 digits have an
// exponent.
std::string format_number(double number, int64_t digits) {
  return std::abs(number) < 1e15 ? fmt::format("{:.{}f}", number, digits) : fmt::format("{:.6g}", number);
}

std::string format_cell(const Json& cell, int64_t digits) {
  if (cell.empty()) return kNoValue;
  if (cell["status"] != "measured") return cell["status"];
  if (cell.contains("text")) return cell["text"];
  const std::string mean = format_number(cell["mean"].get<double>(), digits);
  return cell["spread"].is_null() ? mean : mean + " ± " + format_number(cell["spread"].get<double>(), digits);
}

// Returns the header and the lines of the printed table. Each printed column contains the measured values. A
// second column with the published values follows each column for which values have been published.
Json make_printed_table(const Json& json) {
  const Json& rows = json["rows"];
  Json header = Json::array({""}), lines = Json::array();
  for (const std::string& line : list_lines(rows)) lines.push_back(Json::array({line}));
  for (const Json& column : json["columns"]) {
    if (!column["printed"].get<bool>()) continue;
    const auto published = [name = column["name"].get<std::string>()](const Json& cells) {
      return cells.value(name, Json::object()).value("paper", Json());
    };
    const bool is_published = std::any_of(
        rows.begin(), rows.end(), [&](const Json& row) { return !published(row["cells"]).is_null(); });
    header.push_back(column["label"]);
    if (is_published) header.push_back(json["reference"]);
    for (Json& line : lines) {
      const Json cell = find_line_cell(rows, line[0], column["name"]), paper = cell.value("paper", Json());
      line.push_back(format_cell(cell, column["digits"]));
      if (is_published)
        line.push_back(paper.is_null() ? kNoValue : fmt::format("{:.6g}", paper.get<double>()));
    }
  }
  return {{"header", header}, {"rows", lines}};
}

}  // namespace

Json make_table_json(const Table& table, const ReproductionOptions& options, const ResultStore& store) {
  const std::string command = make_command_text(table, options);
  Json json = {{"table", table.name},
               {"title", table.title},
               {"source", table.source},
               {"notes", table.notes},
               {"reference", table.reference},
               {"scale", options.scale},
               {"settings", options.all_config_settings},
               {"device", options.device},
               {"version", get_build_info().version}};
  json.update(collect_provenance());
  Json& columns = json["columns"] = Json::array();
  for (const Measurement& measurement : table.measurements)
    for (const Column& column : measurement.columns)
      columns.push_back({{"name", column.name},
                         {"label", column.label},
                         {"digits", column.digits},
                         {"printed", column.printed}});
  std::vector<RowResults> all;
  std::set<int64_t> seeds;
  Json& rows = json["rows"] = Json::array();
  Json pictures = Json::array();
  for (const Row& row : table.rows) {
    RowResults& results = all.emplace_back();
    for (const int64_t seed : store.list_seeds(row)) {
      seeds.insert(seed);
      const Json& known = results.emplace_back(seed, store.get(row, seed)).second;
      for (const Json& entry : known)
        for (const Json& picture : entry.value("pictures", Json::array())) pictures.push_back(picture);
    }
    rows.push_back(make_row_json(table, row, results, command));
  }
  json["command"] = command + make_seeds_text(seeds);
  Json& figures = json["figures"] = Json::array();
  for (const Figure& figure : table.figures) figures.push_back(make_figure_json(figure, all, json["rows"]));
  json["pictures"] = pictures;
  json["printed"] = make_printed_table(json);
  return json;
}

}  // namespace tapeformer
