// Kinds of measurements. A kind has a name and options of its own, and a function that returns records: JSON
// objects such as the output of a command or the lines of metrics.jsonl. The columns and curves of a
// measurement read their values from the records, in the same way for all kinds.
#pragma once

#include <deque>
#include <utility>

#include "core/base/errors.h"
#include "core/options/option_table.h"
#include "core/options/part.h"
#include "train/reproduce/commands.h"

namespace tapeformer {

using Records = std::vector<Json>;

// A measurement of one trial.
struct MeasurementRun {
  const Measurement& measurement;
  const Trial& trial;
  const CommandContext& context;
  Lookup variables;      // those of CommandContext::make_variables()
  Words pictures = {};   // names of the PNG files in the folder of the table
  Json provenance = {};  // if not null, the commit, machine, threads and date of results of the training
  int64_t command_count = 0;

  Json run_command(const Words& command) {
    return context.run(trial, concat_text(measurement.name, ".", command_count++), command);
  }
};

struct MeasurementKind {
  std::string name;
  std::string help;  // a one-line description
  std::vector<OptionSpec> options = {};
  bool needs_run = true;    // whether the kind measures only rows that are trained
  bool every_seed = false;  // false: results such as speeds do not depend on the seed
  std::function<Records(const OptionValues& options, MeasurementRun& run)> measure = nullptr;
  // Returns the estimated time in seconds, for --dry-run. `forward_seconds` is the estimated time of the
  // forward pass for one example. Optional; without it, the estimate is 0.
  std::function<double(const OptionValues& options, double forward_seconds, const Config& config)>
      estimate_seconds = nullptr;
};

// Returns a kind whose options are in `table`.
template <class O>
MeasurementKind make_measurement_kind(std::string name, std::string help, const OptionTable<O>& table,
                                      Records (*measure)(const O& options, MeasurementRun& run)) {
  return {.name = std::move(name),
          .help = std::move(help),
          .options = table.specs(),
          .measure = [table, measure](const OptionValues& options, MeasurementRun& run) {
            return measure(table.read(options), run);
          }};
}

const std::deque<MeasurementKind>& list_measurement_kinds();
// Throws ConfigError for an unknown name; the message suggests the nearest known name.
const MeasurementKind& find_measurement_kind(const std::string& name);

MeasurementKind make_evaluation_kind();
MeasurementKind make_generation_kind();
MeasurementKind make_command_kind();
MeasurementKind make_linearization_kind();
MeasurementKind make_metrics_kind();
MeasurementKind make_model_kind();
MeasurementKind make_sweep_kind();

// Returns the options of a measurement of a trial. Throws ConfigError for an unknown variable or an invalid
// value.
OptionValues read_measurement_options(const Measurement& measurement, const Lookup& variables);

// Runs a measurement. Returns an object with the entries values, texts, curves, pictures, seconds, commit,
// machine, threads and date. Throws CommandError if a command fails, and StoppedError if a signal arrives.
Json run_measurement(const Measurement& measurement, const Trial& trial, const CommandContext& context);

// Returns the number in a field of a record, such as "cases.0.state_bytes", or std::nullopt.
std::optional<double> find_number(const Json& record, const std::string& field);

// Points (x, y) of a curve.
using Points = std::vector<std::pair<double, double>>;
// Returns the points (x, field) of the records with both numbers.
Points list_points(const Records& records, const std::string& field);

// Returns the exponent of a power law that is fitted to (x, y): the slope of a least-squares line through
// (log x, log y). The fit uses the second half of the points, or the last three points if the second half has
// fewer than three points. Returns NaN if there are fewer than two points.
double fit_power_law_exponent(const Points& points);

}  // namespace tapeformer
