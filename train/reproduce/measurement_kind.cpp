#include "train/reproduce/measurement_kind.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/errors.h"
#include "core/stopwatch.h"
#include "train/bench/measure.h"
#include "train/reproduce/store.h"

namespace tapeformer {
namespace {

Registry<MeasurementKind>& registry() {
  static auto* const kinds = new Registry<MeasurementKind>(
      "kind of measurement",
      {make_evaluation_kind(), make_metrics_kind(), make_generation_kind(), make_linearization_kind(),
       make_command_kind(), make_sweep_kind(), make_model_kind()});
  return *kinds;
}

const Json* find_field(const Json& record, const std::string& field) {
  const Json* found = &record;
  for (size_t begin = 0; begin <= field.size();) {
    const size_t end = std::min(field.find('.', begin), field.size());
    const std::string name = field.substr(begin, end - begin);
    if (found->is_object() && found->contains(name))
      found = &found->at(name);
    else if (size_t index = 0;
             found->is_array() && std::sscanf(name.c_str(), "%zu", &index) == 1 && index < found->size())
      found = &found->at(index);
    else
      return nullptr;
    begin = end + 1;
  }
  return found;
}

bool has_split(const Json& record, const std::string& split) {
  return split.empty() || record.value("split", "") == split;
}

Records select_records(const Records& records, const Column& column) {
  Records selected;
  for (const Json& record : records) {
    if (!column.before.empty() && has_split(record, column.before)) break;
    const bool is_there = column.at == 0 || find_number(record, "x") == static_cast<double>(column.at);
    if (is_there && has_split(record, column.split) && find_field(record, column.key))
      selected.push_back(record);
  }
  return selected;
}

double reduce(const Column& column, const Records& records) {
  Points points = list_points(records, column.key);
  for (auto& point : points) point.second *= column.factor;
  if (column.reduce == "exponent") return fit_power_law_exponent(points);
  std::vector<double> values;
  for (const Json& record : records)
    values.push_back(column.factor * find_number(record, column.key).value_or(NAN));
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return NAN;
  if (column.reduce == "first") return values.front();
  if (column.reduce == "lowest") return *std::min_element(values.begin(), values.end());
  if (column.reduce == "highest") return *std::max_element(values.begin(), values.end());
  return column.reduce == "median" ? compute_median(values) : values.back();
}

// Adds the value or the text of a column to the result of a measurement.
void read_column(const Column& column, const Records& records, const Row& row, Json& result) {
  if (!column.text.empty()) {
    result["texts"][column.name] = fill_text(column.text, row.variables);
    return;
  }
  if (!column.published_ratio.empty()) {
    const auto published = row.published.find(column.published_ratio);
    if (published == row.published.end())
      result["texts"][column.name] = kNoValue;
    else
      result["values"][column.name] =
          published->second / result["values"].at(column.published_ratio).get<double>();
    return;
  }
  const Records selected = select_records(records, column);
  if (selected.empty()) return;
  if (const Json* const text = find_field(selected.back(), column.key); text->is_string())
    result["texts"][column.name] = *text;
  else
    result["values"][column.name] = reduce(column, selected);
}

Json read_curve(const CurveSource& source, const Records& records) {
  Json points = Json::array();
  double x = 0;
  for (const Json& record : records) {
    if (const auto found = find_number(record, source.x)) x = *found + (source.sum_x ? x : 0);
    const auto y = find_number(record, source.y);
    if (y && has_split(record, source.split)) points.push_back({x, source.factor * *y});
  }
  return points;
}

}  // namespace

const std::deque<MeasurementKind>& list_measurement_kinds() {
  return registry().list();
}
const MeasurementKind& find_measurement_kind(const std::string& name) {
  return registry().find(name);
}

OptionValues read_measurement_options(const Measurement& measurement, const Lookup& variables) {
  return read_option_values(measurement.kind->options, fill_json(measurement.options, variables),
                            "measurement \"" + measurement.name + "\"");
}

Json run_measurement(const Measurement& measurement, const Trial& trial, const CommandContext& context) {
  const Stopwatch watch(kCpu);
  MeasurementRun run{measurement, trial, context, context.make_variables(trial)};
  const Records records =
      measurement.kind->measure(read_measurement_options(measurement, run.variables), run);
  Json result = run.provenance.is_null() ? collect_provenance() : run.provenance;
  result["values"] = Json::object();
  for (const Column& column : measurement.columns) read_column(column, records, trial.row, result);
  result["curves"] = Json::array();
  // Rows of a sweep share the line of the printed table, and trainings are different curves.
  const std::string& name = measurement.sweep.empty() ? trial.row.name : trial.row.line;
  for (const CurveSource& source : measurement.curves)
    result["curves"].push_back(
        {{"figure", source.figure}, {"name", name}, {"points", read_curve(source, records)}});
  if (!run.pictures.empty()) result["pictures"] = run.pictures;
  result["seconds"] = watch.measure_elapsed_seconds();
  return result;
}

std::optional<double> find_number(const Json& record, const std::string& field) {
  const Json* const found = find_field(record, field);
  return found && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

Points list_points(const Records& records, const std::string& field) {
  Points points;
  for (const Json& record : records)
    if (const auto x = find_number(record, "x"), y = find_number(record, field); x && y)
      points.emplace_back(*x, *y);
  return points;
}

double fit_power_law_exponent(const Points& points) {
  constexpr size_t kFittedPoints = 3;
  const size_t count = std::min(points.size(), std::max(kFittedPoints, (points.size() + 1) / 2));
  if (count < 2) return std::numeric_limits<double>::quiet_NaN();
  double x_sum = 0, y_sum = 0, xx = 0, xy = 0;
  for (size_t i = points.size() - count; i < points.size(); ++i) {
    const double x = std::log(points[i].first), y = std::log(points[i].second);
    x_sum += x;
    y_sum += y;
    xx += x * x;
    xy += x * y;
  }
  const auto n = static_cast<double>(count);
  return (n * xy - x_sum * y_sum) / (n * xx - x_sum * x_sum);
}

}  // namespace tapeformer
