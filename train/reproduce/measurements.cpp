#include "train/reproduce/measurements.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/errors.h"
#include "train/build.h"
#include "train/metrics.h"

namespace tapeformer {
namespace {

constexpr size_t kFittedPoints = 3;

std::string make_length_name(const char* prefix, int64_t length) {
  return concat_text(prefix, "_", length);
}

// Returns the estimated number of examples of an evaluation. Without data.eval_limit, assumes 10,000, the
// size of the test sets of MNIST and CIFAR-10.
double count_evaluated_examples(const Config& config) {
  return static_cast<double>(config.data.eval_limit > 0 ? config.data.eval_limit : 10000);
}

}  // namespace

Measurement make_command_measurement(const std::string& name, const Words& command,
                                     const std::vector<OutputField>& fields) {
  Measurement measurement{.name = name, .commands = {command}};
  for (const OutputField& field : fields) measurement.columns.push_back(field.column);
  measurement.read_results = [fields](const std::vector<Json>& outputs, const Trial&) {
    MeasurementResults measured;
    for (const OutputField& field : fields)
      if (const auto value = outputs[0].find(field.key); value != outputs[0].end() && value->is_number())
        measured.values.emplace_back(field.column.name, field.factor * value->get<double>());
    return measured;
  };
  return measurement;
}

Measurement make_test_evaluation_measurement(const std::string& name, const std::vector<OutputField>& fields,
                                             const std::vector<std::string>& settings) {
  Words command = {"eval", "{run}", "--limit", "{limit}"};
  for (const std::string& set : settings) command.insert(command.end(), {"--set", set});
  Measurement measurement = make_command_measurement(name, command, fields);
  if (settings.empty()) {
    measurement.make_trial_commands = [command](const Trial& trial) {
      return trial.test_evaluation.is_null() ? std::vector<Words>{command} : std::vector<Words>{};
    };
    measurement.read_results = [read = measurement.read_results](const std::vector<Json>& outputs,
                                                                 const Trial& trial) {
      if (!outputs.empty()) return read(outputs, trial);
      MeasurementResults measured = read({trial.test_evaluation["output"]}, trial);
      for (const char* key : {"commit", "machine", "threads", "date"})
        measured.provenance[key] = trial.test_evaluation[key];
      return measured;
    };
  }
  measurement.estimate_seconds = [](double forward, const Trial& trial) {
    return forward * count_evaluated_examples(trial.config);
  };
  return measurement;
}

OutputField make_test_bits_per_dim_field() {
  return {{.name = "bits_per_dim", .label = "bits/dim", .decimal_places = 3}, "bits_per_dim"};
}

OutputField make_test_loss_field() {
  return {{.name = "test_loss_nats", .label = "test loss, nats", .decimal_places = 4}, "nats_per_dim"};
}

OutputField make_test_accuracy_field() {
  return {{.name = "accuracy_percent", .label = "accuracy, %"}, "accuracy", 100};
}

Measurement make_training_curve_measurement(const std::string& figure) {
  return {.name = "curve",
          .columns =
              {{.name = "training_seconds", .label = "training, s", .decimal_places = 0, .is_speed = true}},
          .read_results = [figure](const std::vector<Json>&, const Trial& trial) {
            MeasurementResults measured;
            Curve curve{figure, trial.row.name, {}};
            double seconds = 0;
            for (const MetricRecord& record : read_metrics(trial.run_dir + "/" + kMetricsFileName)) {
              if (get_metric_text(record, "split") != "train") continue;
              seconds = get_metric_number(record, "seconds", seconds);
              curve.points.emplace_back(get_metric_number(record, "step", 0),
                                        get_metric_number(record, "loss_nats", 0));
            }
            measured.values = {{"training_seconds", seconds}};
            if (!figure.empty()) measured.curves = {curve};
            return measured;
          }};
}

Measurement make_generation_measurement(const GenerationMeasurementOptions& speed) {
  Words command = {"generate", "{run}",
                   "--count",  std::to_string(speed.image_count),
                   "--batch",  std::to_string(speed.batch_size),
                   "--mode",   speed.mode,
                   "--out",    "{file}." + speed.column + ".png"};
  if (!speed.device.empty()) command.insert(command.end(), {"--device", speed.device});
  const Column column{.name = speed.column, .label = speed.label, .decimal_places = 3, .is_speed = true};
  Measurement measurement = make_command_measurement(
      speed.column, command, {{column, speed.measures_latency ? "seconds" : "images_per_second"}});
  measurement.row_names = speed.row_names;
  measurement.measures_first_seed_only = true;
  // For each token, the mode "recompute" repeats the forward pass over all previous tokens. On average over
  // the tokens, the number of previous tokens is half of the sequence length.
  measurement.estimate_seconds = [speed](double forward, const Trial& trial) {
    const bool recomputes = speed.mode == "recompute";
    const double passes = recomputes ? static_cast<double>(get_dataset_info(trial.config).length) / 2 : 1;
    return static_cast<double>(speed.image_count) * forward * passes;
  };
  return measurement;
}

double fit_power_law_exponent(const std::vector<std::pair<double, double>>& points) {
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

std::vector<int64_t> list_doubled_lengths(const char* option, int64_t shortest, int64_t longest) {
  if (longest < shortest)
    throw ConfigError(concat_text("measure.", option, " = ", longest, ": expected at least ", shortest));
  std::vector<int64_t> lengths;
  for (int64_t length = shortest; length <= longest; length *= 2) lengths.push_back(length);
  return lengths;
}

std::vector<Column> make_scaling_columns(const std::vector<int64_t>& lengths) {
  std::vector<Column> columns;
  const auto add = [&](const char* prefix, const std::string& unit, bool is_speed) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      const bool printed = i == 0 || i + 1 == lengths.size() || i == lengths.size() / 2;
      columns.push_back({make_length_name(prefix, lengths[i]), concat_text(unit, " at ", lengths[i]), 1,
                         printed, is_speed});
    }
    columns.push_back({std::string(prefix) + "_exponent", unit + ", exponent", 2, true, is_speed});
  };
  add("milliseconds", "ms", true);
  add("mebibytes", "MiB", false);
  return columns;
}

MeasurementResults read_scaling_results(const Json& rows, const std::string& curve) {
  MeasurementResults measured;
  Curve time{"time", curve, {}}, memory{"memory", curve, {}};
  for (const Json& row : rows) {
    const auto length = row["length"].get<int64_t>();
    const auto x = static_cast<double>(length);
    time.points.emplace_back(x, 1e3 * row["seconds"].get<double>());
    memory.points.emplace_back(x, row["peak_bytes"].get<double>() / kBytesPerMebibyte);
    measured.values.emplace_back(make_length_name("milliseconds", length), time.points.back().second);
    measured.values.emplace_back(make_length_name("mebibytes", length), memory.points.back().second);
  }
  measured.values.emplace_back("milliseconds_exponent", fit_power_law_exponent(time.points));
  measured.values.emplace_back("mebibytes_exponent", fit_power_law_exponent(memory.points));
  measured.curves = {time, memory};
  return measured;
}

std::vector<Figure> make_scaling_figures(const std::string& title, const std::string& x) {
  const Axis lengths{x, Scale::log2};
  return {{"time", title, lengths, {"milliseconds", Scale::log10}},
          {"memory", title + ", memory", lengths, {"MiB", Scale::log10}}};
}

}  // namespace tapeformer
