// The kinds of measurements.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/attention/pattern.h"
#include "models/layers/module.h"
#include "train/build.h"
#include "train/config/value.h"
#include "train/metrics.h"
#include "train/reproduce/measurement_kind.h"

namespace tapeformer {
namespace {

struct EvaluationOptions {
  Words settings;
  std::string checkpoint;
  bool from_training = true;
};

Records evaluate(const EvaluationOptions& options, MeasurementRun& run) {
  const Json& training = run.trial.training;
  const Json output = training.is_null() ? Json::object() : training.value("output", Json::object());
  if (options.from_training && options.settings.empty() && options.checkpoint.empty() &&
      output.value("split", "") == "test" && output.value("run_dir", "") == run.trial.run_dir) {
    for (const char* key : {"commit", "machine", "threads", "date"}) run.provenance[key] = training.at(key);
    return {output};
  }
  Words command = {"eval", run.trial.run_dir};
  if (!options.checkpoint.empty()) command.insert(command.end(), {"--checkpoint", options.checkpoint});
  command.insert(command.end(), {"--limit", std::to_string(run.trial.config.data.eval_limit)});
  for (const std::string& set : options.settings) command.insert(command.end(), {"--set", set});
  return {run.run_command(command)};
}

struct GenerationOptions {
  std::string mode = "recurrent", device;
  int64_t count = 1, batch = 1;
};

Records generate(const GenerationOptions& options, MeasurementRun& run) {
  Words command = {"generate", run.trial.run_dir,
                   "--count",  std::to_string(options.count),
                   "--batch",  std::to_string(options.batch),
                   "--mode",   options.mode,
                   "--out",    fill_text("{file}." + run.measurement.name + ".png", run.variables)};
  if (!options.device.empty()) command.insert(command.end(), {"--device", options.device});
  return {run.run_command(command)};
}

// For each token, the mode "recompute" repeats the forward pass over all previous tokens. On average over the
// tokens, the number of previous tokens is half of the sequence length.
double estimate_generation(const GenerationOptions& options, double forward_seconds, const Config& config) {
  const double passes =
      options.mode == "recompute" ? static_cast<double>(get_dataset_info(config).length) / 2 : 1;
  return static_cast<double>(options.count) * forward_seconds * passes;
}

struct CommandOptions {
  Words arguments;
  std::vector<int64_t> each = {0};
  std::string picture;
};

Records run_commands(const CommandOptions& options, MeasurementRun& run) {
  Records records;
  for (const int64_t value : options.each)
    records.push_back(run.run_command(fill_texts(options.arguments, make_lookup({{"value", value}}))));
  if (!options.picture.empty())
    run.pictures.push_back(std::filesystem::path(options.picture).filename().string());
  return records;
}

struct LinearizationOptions {
  std::string teacher, keep;
  int64_t transfer_steps = 500, steps = 1000;
  double rate = 2e-4;
};

Records linearize(const LinearizationOptions& options, MeasurementRun& run) {
  Words command = {
      "linearize",
      (run.context.runs_folder / make_run_name(options.teacher, run.trial.config.run.seed)).string(),
      "--run-dir",
      run.trial.run_dir,
      "--transfer-steps",
      std::to_string(options.transfer_steps),
      "--steps",
      std::to_string(options.steps),
      "--lr",
      concat_text(options.rate)};
  if (!options.keep.empty()) command.insert(command.end(), {"--keep", options.keep});
  const std::string attention = "model.attention=";
  for (const std::string& setting : fill_texts(run.trial.row.fixed, run.variables))
    if (setting.starts_with(attention))
      command.insert(command.end(), {"--attention", setting.substr(attention.size())});
    else
      command.insert(command.end(), {"--set", setting});
  const Json models = run.run_command(command).at("models");
  Json record = models.at(1);
  record["teacher"] = models.at(0);
  return {record};
}

Records read_metric_records(MeasurementRun& run) {
  Records records;
  for (const MetricRecord& record : read_metrics(run.trial.run_dir + "/" + kMetricsFileName)) {
    Json json = Json::object();
    for (const auto& [field, value] : record)
      std::visit([&json, &name = field](const auto& one) { json[name] = one; }, value);
    records.push_back(std::move(json));
  }
  return records;
}

int64_t count_model_parameters(const Config& config) {
  return count_parameters(*make_example_model(config, get_dataset_info(config)));
}

std::string describe_decoding(const AttentionPattern& attention) {
  if (!supports(attention, &AttentionCapabilities::causal)) return "no";
  if (!supports(attention, &AttentionCapabilities::recurrent)) return "yes, recomputes the prefix";
  return supports(attention, &AttentionCapabilities::has_constant_size_state) ? "yes, constant state"
                                                                              : "yes, growing state";
}

Records describe_model(MeasurementRun& run) {
  const Config& config = run.trial.config;
  Config full = config;
  full.model.attention = {"softmax"};
  full.attention = {{"softmax", find_attention_kind("softmax").default_options()}};
  full.model.options.erase("summary_tokens");
  return {Json{{"parameters_added", count_model_parameters(config) - count_model_parameters(full)},
               {"decoding", describe_decoding(make_attention_pattern(config))}}};
}

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

MeasurementKind make_evaluation_kind() {
  using O = EvaluationOptions;
  OptionTable<O> table;
  table.add("settings", &O::settings, "settings of the evaluation, as for --set");
  table.add("checkpoint", &O::checkpoint, "--checkpoint of eval; empty: its default");
  table.add("from_training", &O::from_training,
            "without settings and checkpoint, use the evaluation of the test split that ended the training");
  auto kind = make_measurement_kind<O>(
      "evaluation", "an evaluation of the test split; the record is the output of eval", table, evaluate);
  kind.every_seed = true;
  // Without data.eval_limit, assumes 10,000 examples, the size of the test sets of MNIST and CIFAR-10.
  kind.estimate_seconds = [](const OptionValues&, double forward_seconds, const Config& config) {
    return forward_seconds * static_cast<double>(config.data.eval_limit > 0 ? config.data.eval_limit : 10000);
  };
  return kind;
}

MeasurementKind make_generation_kind() {
  using O = GenerationOptions;
  OptionTable<O> table;
  table.add("mode", &O::mode, "--mode of generate").require_one_of({"recurrent", "recompute"});
  table.add("count", &O::count, "number of images").require_at_least(1);
  table.add("batch", &O::batch, "images at the same time").require_at_least(1);
  table.add("device", &O::device, "--device of generate; empty: that of the table");
  auto kind = make_measurement_kind<O>(
      "generation", "generation of images; the record is the output of generate", table, generate);
  kind.estimate_seconds = [table](const OptionValues& values, double forward_seconds, const Config& config) {
    return estimate_generation(table.read(values), forward_seconds, config);
  };
  return kind;
}

MeasurementKind make_command_kind() {
  using O = CommandOptions;
  OptionTable<O> table;
  table.add("arguments", &O::arguments,
            "a command; {run}, {config} and {file} are the run directory, the config, and a path without an "
            "extension");
  table.add("each", &O::each, "the command runs for each of these values of {value}");
  table.add("picture", &O::picture, "path of a PNG file that the command writes");
  auto kind =
      make_measurement_kind<O>("command", "a command; the records are its outputs", table, run_commands);
  kind.needs_run = false;
  return kind;
}

MeasurementKind make_linearization_kind() {
  using O = LinearizationOptions;
  OptionTable<O> table;
  table.add("teacher", &O::teacher, "row whose trained model is linearized; it has no other task");
  table.add("keep", &O::keep, "--keep of linearize: layers that keep their attention");
  table.add("transfer_steps", &O::transfer_steps, "--transfer-steps of linearize").require_at_least(0);
  table.add("steps", &O::steps, "--steps of linearize").require_at_least(0);
  table.add("rate", &O::rate, "--lr of linearize").require_at_least(0);
  auto kind = make_measurement_kind<O>(
      "linearization",
      "linearize with the attention and the other fixed settings of the row; the record is that of the new "
      "model, and its field teacher is that of the old one",
      table, linearize);
  kind.needs_run = false;
  kind.every_seed = true;
  return kind;
}

MeasurementKind make_metrics_kind() {
  return {.name = "metrics",
          .help = "the training; the records are those of metrics.jsonl",
          .every_seed = true,
          .measure = [](const OptionValues&, MeasurementRun& run) { return read_metric_records(run); }};
}

MeasurementKind make_model_kind() {
  return {.name = "model",
          .help =
              "the record has parameters_added, the number of parameters that softmax attention does not "
              "have, and decoding, the form of decoding",
          .needs_run = false,
          .measure = [](const OptionValues&, MeasurementRun& run) { return describe_model(run); }};
}

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
