// Measurements with several values of a variable {x}, such as the length of the sequences.
#include <algorithm>
#include <cmath>

#include "train/config/value.h"
#include "train/reproduce/measurement_kind.h"

namespace tapeformer {
namespace {

struct SweepOptions {
  Words arguments;
  bool row_settings = false;
  Words roots, summed;
  std::string growth;
};

Words make_command(const SweepOptions& options, const MeasurementRun& run, int64_t x) {
  int64_t root = 1;
  while (root * root < x) root *= 2;
  Json values = {{"x", x}};
  for (const std::string& name : options.roots) values[name] = root;
  const Lookup variables = make_lookup(values, run.variables);
  Words command = fill_texts(options.arguments, variables);
  if (options.row_settings)
    for (const std::string& setting : run.trial.row.fixed)
      if (setting.find('{') != std::string::npos)
        command.insert(command.end(), {"--set", fill_text(setting, variables)});
  return command;
}

// Adds the records of an output. A record with the x of the last record is merged with it: fields in `summed`
// are summed, and of other fields the largest value counts.
void add_records(const Json& output, std::optional<int64_t> x, const Words& summed, Records& records) {
  for (Json record : output.value("lengths", Json::array({output}))) {
    record["x"] = x ? Json(*x) : record.value("length", Json());
    if (records.empty() || records.back()["x"] != record["x"]) {
      records.push_back(record);
      continue;
    }
    for (auto& [field, value] : records.back().items())
      if (is_listed(summed, field))
        value = value.get<double>() + record.at(field).get<double>();
      else if (value.is_number())
        value = std::max(value, record.at(field));
  }
}

double evaluate_growth(const std::string& growth, double n) {
  if (growth == "n") return n;
  if (growth == "n log n") return n * std::log(n);
  return growth == "n^2" ? n * n : n * std::sqrt(n);
}

std::string describe_growth(const Records& records, const std::string& growth) {
  constexpr size_t kNeededLengths = 6;
  constexpr double kTolerance = 0.15;
  if (records.size() < kNeededLengths) return "too few lengths";
  Points stated = list_points(records, "x");
  for (auto& [n, cost] : stated) cost = evaluate_growth(growth, n);
  const double limit = fit_power_law_exponent(stated) + kTolerance;
  const bool time = fit_power_law_exponent(list_points(records, "seconds")) <= limit,
             memory = fit_power_law_exponent(list_points(records, "peak_bytes")) <= limit;
  if (time && memory) return "yes";
  return std::string("not of ") + (time ? "memory" : memory ? "time" : "time and memory");
}

Records sweep(const SweepOptions& options, MeasurementRun& run) {
  const bool uses_x = std::any_of(options.arguments.begin(), options.arguments.end(),
                                  [](const auto& word) { return word.find('{') != std::string::npos; });
  Records records;
  if (!uses_x) add_records(run.run_command(options.arguments), std::nullopt, options.summed, records);
  if (uses_x)
    for (const int64_t x : run.measurement.sweep)
      add_records(run.run_command(make_command(options, run, x)), x, options.summed, records);
  if (!options.growth.empty())
    records.push_back({{"complexity_holds", describe_growth(records, options.growth)}});
  return records;
}

}  // namespace

MeasurementKind make_sweep_kind() {
  using O = SweepOptions;
  OptionTable<O> table;
  table.add(
      "arguments", &O::arguments,
      "a command. With {x}, it runs for each x, and otherwise once; its output then has a list \"lengths\" "
      "of records with the field \"length\"");
  table.add("row_settings", &O::row_settings, "also --set for the fixed settings of the row with variables");
  table.add("roots", &O::roots,
            "variables with the smallest power of two that is at least the square root of x");
  table.add("summed", &O::summed, "fields that are summed over records with the same x; default: maximum");
  table
      .add(
          "growth", &O::growth,
          "stated complexity, for the field complexity_holds: are the exponents of seconds and peak_bytes at "
          "most 0.15 larger")
      .require_one_of({"", "n", "n log n", "n sqrt n", "n^2"});
  auto kind = make_measurement_kind<O>(
      "sweep", "a command for several x; the records are its outputs with the field x", table, sweep);
  kind.needs_run = false;
  return kind;
}

}  // namespace tapeformer
