// "Efficient Transformers: A Survey" (Tay et al. 2020): the attention kinds of table 1. Each attention kind
// is trained in the same small model with the same hyperparameters. Row KIND trains a classifier on ListOps,
// row KIND-cifar10 trains a classifier on gray CIFAR-10, and row KIND-mnist trains an autoregressive model on
// MNIST. The printed table shows the rows of an attention kind in a single line.
#include <algorithm>
#include <cmath>

#include "models/attention/pattern.h"
#include "models/layers/module.h"
#include "train/build.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

// Values for those options of attention kinds that depend on the sequence length, such as `stride` and
// `image_width`.
struct Grid {
  int64_t side;   // power of two near the square root of the sequence length
  int64_t width;  // width of the images; equal to `side` if the sequences are not images
};

using Settings = std::vector<std::string>;

// An attention kind in the table.
//   type             class of the model in the survey. FP means fixed patterns, M means memory, LP means
//                    learnable patterns, LR means low rank, KR means kernels, and RC means recurrence.
//   complexity       complexity for n tokens, as stated in the survey
//   cost             function that returns the complexity for n tokens, up to a constant factor. In the
//                    measured models, the other symbols in `complexity`, such as k in "n k", are constants
//                    or functions of n.
//   listops, images  published accuracies in percent, from table 1 of "Long Range Arena" (Tay et al. 2020).
//                    0 means that no accuracy is published.
struct SurveyKind {
  const char *name, *type, *complexity;
  double (*cost)(double n);
  Settings (*settings)(const Grid& grid);
  double listops = 0, images = 0;
  bool is_trained = true;
};

double linear(double n) {
  return n;
}
double linearithmic(double n) {
  return n * std::log(n);
}
double three_halves(double n) {
  return n * std::sqrt(n);
}
double quadratic(double n) {
  return n * n;
}

Settings make_kind_settings(const std::string& kind, std::vector<std::string> options = {}) {
  Settings settings = {"model.attention=" + kind};
  for (const std::string& option : options) settings.push_back("attention." + option);
  return settings;
}

Settings axial(const Grid& grid) {
  return {R"(model.attention=["axial-row", "axial-column"])",
          concat_text("attention.axial-row.image_width=", grid.width),
          concat_text("attention.axial-column.image_width=", grid.width)};
}

Settings etc(const Grid&) {
  Settings settings = make_kind_settings("etc", {"radius=16", "global_tokens=8"});
  settings.emplace_back("model.summary_tokens=8");
  return settings;
}

Settings sparse_fixed(const Grid& grid) {
  return make_kind_settings("sparse", {"form=fixed", concat_text("stride=", grid.side), "summary=4"});
}

Settings sparse_strided(const Grid& grid) {
  return make_kind_settings("sparse", {"form=strided", concat_text("stride=", grid.side)});
}

Settings routing(const Grid& grid) {
  return make_kind_settings("routing", {concat_text("clusters=", grid.side / 4), "local_window=32"});
}

Settings sinkhorn(const Grid& grid) {
  return make_kind_settings("sinkhorn", {concat_text("block=", grid.side)});
}

// Returns the attention kinds of the table. Softmax attention is first, and the models of the survey follow
// in the order of the survey. After `linear` are the linear kinds that forget, which are newer. `local`, a
// baseline of the Long Range Arena, is last.
std::vector<SurveyKind> survey_kinds() {
  return {
      {"softmax", "full", "n²", quadratic, [](const Grid&) { return make_kind_settings("softmax"); }, 36.37,
       42.44},
      {"memory-compressed", "FP+M", "n_c²", quadratic,
       [](const Grid&) { return make_kind_settings("memory-compressed"); }},
      {"image", "FP", "n m", linear,
       [](const Grid&) {
         return make_kind_settings("image", {"block=32", "memory=16"});
       }},
      {"isab", "M", "n k", linear, [](const Grid&) { return make_kind_settings("isab"); }},
      {"transformer-xl", "RC", "n²", quadratic,
       [](const Grid&) { return make_kind_settings("transformer-xl", {"memory=0"}); }},
      {"sparse-strided", "FP", "n √n", three_halves, sparse_strided},
      {"sparse-fixed", "FP", "n √n", three_halves, sparse_fixed, 17.07, 44.24},
      {"lsh", "LP", "n log n", linearithmic,
       [](const Grid&) {
         return make_kind_settings("lsh", {"chunk_length=16", "rounds=2"});
       },
       37.27, 38.07},
      {"routing", "LP", "n log n", linearithmic, routing},
      {"axial", "FP", "n √n", three_halves, axial},
      {"compressive", "RC", "n²", quadratic,
       [](const Grid&) {
         return make_kind_settings("compressive", {"memory=0", "compressed_memory=0"});
       },
       0, 0, false},
      {"sinkhorn", "LP", "b²", linear, sinkhorn, 33.67, 41.23},
      {"longformer", "FP+M", "n (k + m)", linear,
       [](const Grid&) { return make_kind_settings("longformer", {"window=32"}); }, 35.63, 42.22},
      {"etc", "FP+M", "n_g² + n n_g", linear, etc},
      {"synthesizer", "LR+LP", "n²", quadratic, [](const Grid&) { return make_kind_settings("synthesizer"); },
       36.99, 41.61},
      {"performer", "KR", "n", linear,
       [](const Grid&) { return make_kind_settings("performer", {"features=64"}); }, 18.01, 42.77},
      {"linformer", "LR", "n", linear,
       [](const Grid&) { return make_kind_settings("linformer", {"rank=32"}); }, 35.70, 38.56},
      {"linear", "KR", "n", linear, [](const Grid&) { return make_kind_settings("linear"); }, 16.13, 42.34},
      {"gated-linear", "KR+RC", "n", linear, [](const Grid&) { return make_kind_settings("gated-linear"); }},
      {"gated-delta", "KR+RC", "n", linear, [](const Grid&) { return make_kind_settings("gated-delta"); }},
      {"big-bird", "FP+M", "n", linear,
       [](const Grid&) { return make_kind_settings("big-bird", {"block=16"}); }, 36.05, 40.83},
      {"local", "FP", "n k", linear, [](const Grid&) { return make_kind_settings("local", {"window=32"}); },
       15.82, 41.46}};
}

// A training task of the table. For each attention kind that supports the task, the table has a row with the
// name KIND + `suffix`.
struct SurveyTask {
  const char *suffix, *config_path;
  Grid grid;
  Settings default_settings;
  OutputField score;
  double SurveyKind::*published = nullptr;
  Capability AttentionCapabilities::*needed = nullptr;  // capability that the task needs, or null
};

OutputField make_accuracy_field(const char* name, const char* label) {
  OutputField field = make_test_accuracy_field();
  field.column.name = name;
  field.column.label = label;
  return field;
}

SurveyTask make_listops_task(const ReproductionOptions& options) {
  const Settings longest = {"data.min_length=500",    "data.max_length=2000", "data.eval_limit=0",
                            "model.layers=4",         "model.heads=8",        "model.head_dim=64",
                            "model.feedforward=1024", "train.steps=5000",     "train.eval_every=1000"};
  return {.suffix = "",
          .config_path = "listops/base.toml",
          .grid = options.select_by_scale<Grid>({16, 16}, {16, 16}, {32, 32}),
          .default_settings = options.select_by_scale<Settings>(
              {"train.steps=10", "data.eval_limit=50"},
              {"train.steps=3000", "train.eval_every=0", "data.eval_limit=0"}, longest),
          .score = make_accuracy_field("accuracy_percent", "ListOps, %"),
          .published = &SurveyKind::listops,
          .needed = &AttentionCapabilities::length_masks};
}

SurveyTask make_image_task(const ReproductionOptions& options) {
  return {.suffix = "-cifar10",
          .config_path = "cifar10/gray-classification.toml",
          .grid = options.select_by_scale<Grid>({16, 16}, {16, 16}, {32, 32}),
          .default_settings = options.select_by_scale<Settings>(
              {"train.steps=3", "data.eval_limit=50"}, {"train.steps=1500", "data.eval_limit=0"},
              {"data.downscale=1", "train.steps=35000", "data.eval_limit=0"}),
          .score = make_accuracy_field("cifar10_accuracy_percent", "gray CIFAR-10, %"),
          .published = &SurveyKind::images};
}

SurveyTask make_digit_task(const ReproductionOptions& options) {
  SurveyTask task{.suffix = "-mnist",
                  .config_path = "mnist/small.toml",
                  .grid = options.select_by_scale<Grid>({16, 14}, {16, 14}, {32, 28}),
                  .default_settings = {"model.layers=2", "model.head_dim=16", "model.feedforward=128",
                                       "data.batch_size=16"},
                  .score = make_test_bits_per_dim_field(),
                  .needed = &AttentionCapabilities::causal};
  task.score.column.label = "MNIST, bits/dim";
  for (const std::string& setting : options.select_by_scale<Settings>(
           {"data.downscale=2", "train.steps=3", "data.eval_limit=10"},
           {"data.downscale=2", "train.steps=1500", "data.eval_limit=2000"}, {"train.steps=20000"}))
    task.default_settings.push_back(setting);
  return task;
}

bool supports_task(const SurveyKind& kind, const SurveyTask& task) {
  if (!task.needed) return true;
  const std::string setting = kind.settings(task.grid).front();
  const std::string name = setting.substr(setting.find('=') + 1);
  const AttentionCapabilities& capabilities =
      find_attention_kind(name.front() == '[' ? "axial-row" : name).capabilities;
  return static_cast<bool>(capabilities.*task.needed);
}

const SurveyKind& get_entry_kind(const Row& row) {
  static const auto* const kinds = new std::vector<SurveyKind>(survey_kinds());
  return *std::find_if(kinds->begin(), kinds->end(),
                       [&](const SurveyKind& kind) { return kind.name == row.line_name; });
}

// Returns the smallest power of two that is at least the square root of `length`.
int64_t compute_square_side(int64_t length) {
  int64_t side = 1;
  while (side * side < length) side *= 2;
  return side;
}

int64_t count_model_parameters(const Config& config) {
  return count_parameters(*make_example_model(config, get_dataset_info(config)));
}

std::string decoding_of(const AttentionPattern& attention) {
  if (!supports(attention, &AttentionCapabilities::causal)) return "no";
  if (!supports(attention, &AttentionCapabilities::recurrent)) return "yes, recomputes the prefix";
  return supports(attention, &AttentionCapabilities::has_constant_size_state) ? "yes, constant state"
                                                                              : "yes, growing state";
}

// Returns a measurement of those properties of an attention kind that do not depend on training.
Measurement properties() {
  return {.name = "properties",
          .columns = {{.name = "class", .label = "class"},
                      {.name = "complexity", .label = "complexity"},
                      {.name = "parameters_added", .label = "parameters added", .decimal_places = 0},
                      {.name = "decoding", .label = "decoding"}},
          .read_results =
              [](const std::vector<Json>&, const Trial& trial) {
                const SurveyKind& kind = get_entry_kind(trial.row);
                Config full = trial.config;
                full.model.attention = {"softmax"};
                full.attention = {{"softmax", find_attention_kind("softmax").default_options()}};
                full.model.options.erase("summary_tokens");
                const int64_t added = count_model_parameters(trial.config) - count_model_parameters(full);
                const std::string decoding = decoding_of(make_attention_pattern(trial.config));
                return MeasurementResults{
                    .values = {{"parameters_added", static_cast<double>(added)}},
                    .texts = {{"class", kind.type}, {"complexity", kind.complexity}, {"decoding", decoding}}};
              },
          .measures_first_seed_only = true};
}

// Returns a JSON array with one object for each length. Each object contains the sum of the times and the
// maximum of the peak memory over the attention kinds of a model. Each element of `outputs` is the output of
// `bench attention` for one length. The array "lengths" in an output of `bench attention` has one object for
// each attention kind.
Json sums_over_kinds(const std::vector<Json>& outputs) {
  Json sums = Json::array();
  for (const Json& output : outputs) {
    Json sum;
    for (const Json& row : output["lengths"]) {
      if (sum.is_null()) {
        sum = row;
        continue;
      }
      sum["seconds"] = sum["seconds"].get<double>() + row["seconds"].get<double>();
      sum["peak_bytes"] = std::max(sum["peak_bytes"].get<int64_t>(), row["peak_bytes"].get<int64_t>());
    }
    if (!sum.is_null()) sums.push_back(sum);
  }
  return sums;
}

double find_value(const MeasurementResults& results, const std::string& name) {
  for (const auto& [key, value] : results.values)
    if (key == name) return value;
  return std::nan("");
}

// Returns the text for the column "complexity holds". If fewer than kNeededLengths lengths were measured, the
// text is "too few lengths". If the measured exponents of time and memory are at most kTolerance larger than
// the exponent that is fitted to kind.cost(), the text is "yes". Otherwise, the text names the exponents that
// are too large, for example "not of time".
std::string verdict(const MeasurementResults& scaling, const SurveyKind& kind) {
  constexpr size_t kNeededLengths = 6;
  constexpr double kTolerance = 0.15;
  std::vector<std::pair<double, double>> stated;
  for (const auto& [length, milliseconds] : scaling.curves.front().points)
    stated.emplace_back(length, kind.cost(length));
  if (stated.size() < kNeededLengths) return "too few lengths";
  const double limit = fit_power_law_exponent(stated) + kTolerance;
  const bool time = find_value(scaling, "milliseconds_exponent") <= limit,
             memory = find_value(scaling, "mebibytes_exponent") <= limit;
  if (time && memory) return "yes";
  return std::string("not of ") + (time ? "memory" : memory ? "time" : "time and memory");
}

std::vector<int64_t> measured_lengths(const ReproductionOptions& options) {
  return list_doubled_lengths("longest", options.select_size("shortest", 256, 512, 512),
                              options.select_size("longest", 1024, 16384, 16384));
}

// Returns the length whose times are drawn beside the accuracies. The returned length is the largest measured
// length of at most 4,096 tokens, because the Long Range Arena uses 4,096 tokens. If all measured lengths are
// larger than 4,096, the function returns the smallest measured length.
int64_t choose_figure_length(const ReproductionOptions& options) {
  int64_t drawn = 0;
  for (const int64_t length : measured_lengths(options))
    if (length <= 4096 || drawn == 0) drawn = length;
  return drawn;
}

Measurement make_attention_by_length_measurement(const ReproductionOptions& options) {
  const std::vector<int64_t> lengths = measured_lengths(options);
  const std::string repeats = std::to_string(options.select_size("repeats", 1, 3, 5));
  Measurement measurement{
      .name = "attention", .columns = make_scaling_columns(lengths), .measures_first_seed_only = true};
  const std::string drawn = concat_text("_", choose_figure_length(options));
  for (Column& column : measurement.columns)
    column.is_printed = column.name.ends_with("_exponent") || column.name.ends_with(drawn);
  measurement.columns.push_back({.name = "complexity_holds", .label = "complexity holds", .is_speed = true});
  measurement.make_trial_commands = [lengths, repeats](const Trial& trial) {
    std::vector<Words> commands;
    for (const int64_t length : lengths) {
      const std::string text = std::to_string(length);
      commands.push_back({"bench", "attention", "--config", "{config}", "--shortest", text, "--longest", text,
                          "--repeats", repeats});
      const int64_t side = compute_square_side(length);
      for (const std::string& setting : get_entry_kind(trial.row).settings({side, side}))
        if (setting.starts_with("attention."))
          commands.back().insert(commands.back().end(), {"--set", setting});
    }
    return commands;
  };
  measurement.read_results = [](const std::vector<Json>& outputs, const Trial& trial) {
    MeasurementResults results = read_scaling_results(sums_over_kinds(outputs), trial.row.line_name);
    results.texts = {{"complexity_holds", verdict(results, get_entry_kind(trial.row))}};
    return results;
  };
  return measurement;
}

Measurement make_decoding_cost_measurement() {
  return {.name = "decoding_cost",
          .columns = {{.name = "milliseconds_per_token",
                       .label = "ms a token",
                       .decimal_places = 3,
                       .is_speed = true},
                      {.name = "state_kibibytes", .label = "state, KiB", .decimal_places = 1}},
          .commands = {{"bench", "generate", "--config", "{config}", "--batch", "1", "--tokens", "128",
                        "--repeats", "3"}},
          .read_results =
              [](const std::vector<Json>& outputs, const Trial&) {
                const Json& one = outputs[0]["cases"][0];
                return MeasurementResults{
                    .values = {{"milliseconds_per_token", one["milliseconds_per_token"].get<double>()},
                               {"state_kibibytes", one["state_bytes"].get<double>() / 1024}}};
              },
          .measures_first_seed_only = true};
}

std::vector<std::string> survey_notes() {
  return {
      "The models of the Long Range Arena have other sizes and recipes, and some of their kinds of attention "
      "differ from the papers. Compare accuracies only with the row softmax of this table.",
      "Time and memory are measured for attention alone, forward and backward, and causal if the kind "
      "supports it. The time of axial is that of a row layer and a column layer. The exponents are fitted to "
      "the longer half of the lengths.",
      "A complexity holds if both exponents are at most 0.15 above the exponent of the stated complexity, "
      "which is fitted to the stated function at the measured lengths. At each length, the strides of "
      "sparse, the blocks of sinkhorn (b = √n) and the width of axial are the power of two near √n, and "
      "routing has a quarter as many clusters. The other options do not depend on the length.",
      "The time of a token and the state are those of the MNIST model with 128 tokens. A growing state has "
      "room for the longest sequence. Kinds without a causal form have no model of MNIST, and kinds without "
      "length masks have none of ListOps.",
      "The sequences are single segments, so transformer-xl has no memory. Without memories, compressive "
      "equals transformer-xl and is not trained.",
      "Other load on the machine changes times, but neither accuracies nor memory.",
      "The column training, s is the time of the training on ListOps."};
}

Row make_row(const SurveyKind& kind, const SurveyTask& task) {
  Row row{.name = kind.name + std::string(task.suffix),
          .config_path = task.config_path,
          .default_settings = task.default_settings,
          .fixed_settings = kind.settings(task.grid),
          .is_trained = kind.is_trained,
          .line_name = kind.name};
  if (task.published && kind.*task.published > 0)
    row.paper_values = {{task.score.column.name, kind.*task.published}};
  return row;
}

Table make_survey_table(const ReproductionOptions& options) {
  Table table{.title = "Models of the survey: accuracy, time and memory",
              .source =
                  "\"Efficient Transformers: A Survey\", table 1, states classes and complexities without "
                  "measurements. The published accuracies are those of \"Long Range Arena\", table 1.",
              .notes = survey_notes(),
              .reference_label = "Long Range Arena"};
  const std::vector<SurveyTask> tasks = {make_listops_task(options), make_image_task(options),
                                         make_digit_task(options)};
  Measurement kinds = properties(), attention = make_attention_by_length_measurement(options),
              decoding = make_decoding_cost_measurement();
  std::vector<Measurement> scores;
  for (const SurveyTask& task : tasks)
    scores.push_back(make_test_evaluation_measurement(task.score.column.name, {task.score}));
  for (const SurveyKind& kind : survey_kinds()) {
    const size_t first = table.rows.size();
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (!supports_task(kind, tasks[i]) || (!kind.is_trained && table.rows.size() > first)) continue;
      table.rows.push_back(make_row(kind, tasks[i]));
      if (!kind.is_trained) continue;
      scores[i].row_names.push_back(table.rows.back().name);
      if (tasks[i].needed == &AttentionCapabilities::causal)
        decoding.row_names.push_back(table.rows.back().name);
    }
    for (Measurement* measurement : {&kinds, &attention})
      measurement->row_names.push_back(table.rows[first].name);
  }
  Measurement curve = make_training_curve_measurement("loss");
  curve.row_names = scores[0].row_names;
  table.measurements = {kinds};
  for (const Measurement& measurement : scores) table.measurements.push_back(measurement);
  for (const Measurement& measurement : {decoding, attention, curve})
    table.measurements.push_back(measurement);
  const int64_t length = choose_figure_length(options);
  table.figures = {
      {.name = "accuracy",
       .title = "Accuracy on gray CIFAR-10, and time and memory of attention",
       .x = {concat_text("milliseconds at ", length, " tokens, forward and backward"), Scale::log10},
       .y = {"accuracy, %", Scale::linear},
       .circles = CircleColumns{concat_text("milliseconds_", length), tasks[1].score.column.name,
                                concat_text("mebibytes_", length), "MiB"}}};
  for (Figure& figure : make_scaling_figures("Attention, forward and backward", "sequence length"))
    table.figures.push_back(figure);
  table.figures.push_back({"loss", "ListOps", {"training step"}, {"cross-entropy, nats", Scale::linear}});
  return table;
}

}  // namespace

Reproduction make_survey_table_reproduction() {
  return {.name = "survey-table",
          .summary =
              "the survey's models: accuracy on ListOps and gray CIFAR-10, bits/dim on MNIST, decoding, time "
              "and memory by length",
          .make_table = make_survey_table,
          .measurement_options = {make_size_option("shortest", "smallest length"),
                                  make_size_option("longest", "largest length"),
                                  make_size_option("repeats", "repeats for the median")},
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "attention", "data.dataset"}};
}

}  // namespace tapeformer
