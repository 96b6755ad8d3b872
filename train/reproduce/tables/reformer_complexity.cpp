// "Reformer" (Kitaev et al. 2020), tables 1 and 3: complexity of attention and of models. Each model is
// measured at several lengths, depths and widths of the feed-forward block. The exponents of time and memory
// are fitted to these measurements.
#include "core/base/errors.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

constexpr int64_t kWidth = 64;  // width of all models
constexpr int64_t kChunk = 32;  // positions per LSH chunk

// Exponents of time and memory in the formulas of the paper.
struct Exponents {
  double time, memory;
};
struct Model {
  const char* name;
  bool lsh, reversible, chunked;
  Exponents length, depth, feedforward;
};
constexpr Model kModels[] = {{"transformer", false, false, false, {2, 2}, {1, 1}, {1, 1}},
                             {"reversible", false, true, false, {2, 2}, {1, 0}, {1, 1}},
                             {"chunked-reversible", false, true, true, {2, 2}, {1, 0}, {1, 0}},
                             {"lsh-transformer", true, false, false, {1, 1}, {1, 1}, {1, 1}},
                             {"reformer", true, true, true, {1, 1}, {1, 0}, {1, 0}}};

// A series of measurements in which only the value of the config key `key` changes.
struct Sweep {
  const char *name, *label, *key;
  std::vector<int64_t> values;
};

std::vector<Sweep> sweeps_of(const ReproductionOptions& options) {
  const int64_t longest = options.select_size("longest", 512, 8192, 65536),
                deepest = options.select_size("deepest", 4, 16, 32),
                widest = options.select_size("widest", 1024, 16384, 65536);
  return {{"length", "length", "data.max_length",
           list_doubled_lengths("longest", std::max<int64_t>(longest / 16, 64), longest)},
          {"depth", "layers", "model.layers", list_doubled_lengths("deepest", 2, deepest)},
          {"feedforward", "hidden width", "model.feedforward",
           list_doubled_lengths("widest", std::max<int64_t>(widest / 16, kWidth), widest)}};
}

// Returns the number of chunks for a feed-forward block with kWidth inputs and `feedforward` hidden units per
// token. With the returned number of chunks, the hidden activations of one chunk need about as much memory as
// the inputs of the block for all tokens.
int64_t choose_chunks(int64_t feedforward) {
  return std::max<int64_t>(feedforward / kWidth, 1);
}

std::string column_name(const char* what, const Sweep& sweep) {
  return concat_text(what, "_", sweep.name);
}

MeasurementResults sweep_results(const Sweep& sweep, const std::vector<Json>& outputs, const Trial& trial) {
  Curve time{column_name("time", sweep), trial.row.name, {}},
      memory{column_name("memory", sweep), trial.row.name, {}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto x = static_cast<double>(sweep.values[i]);
    time.points.emplace_back(x, 1e3 * outputs[i]["seconds_per_step"].get<double>());
    memory.points.emplace_back(x, outputs[i]["added_bytes"].get<double>() / kBytesPerMebibyte);
  }
  return {.values = {{time.figure_name, fit_power_law_exponent(time.points)},
                     {memory.figure_name, fit_power_law_exponent(memory.points)}},
          .curves = {time, memory}};
}

Measurement sweep_measurement(const Sweep& sweep, const ReproductionOptions& options) {
  Measurement measurement{
      .name = sweep.name,
      .columns = {{column_name("time", sweep), concat_text("time, ", sweep.label), 2, true, true},
                  {column_name("memory", sweep), concat_text("memory, ", sweep.label), 2}},
      .read_results = [sweep](const std::vector<Json>& outputs,
                              const Trial& trial) { return sweep_results(sweep, outputs, trial); },
      .measures_first_seed_only = true};
  for (const int64_t value : sweep.values) {
    Words command = {"bench",     "train-step",
                     "--config",  "{config}",
                     "--repeats", std::to_string(options.select_size("repeats", 1, 3, 5)),
                     "--set",     concat_text(sweep.key, "=", value)};
    measurement.commands.push_back(command);
  }
  for (const Model& model : kModels) measurement.row_names.emplace_back(model.name);
  return measurement;
}

// A row of table 1 of the paper. For each row, attention without other layers is measured at several lengths.
struct AttentionType {
  const char *name, *kind;
  Exponents length;
};
constexpr AttentionType kAttentionTypes[] = {{"attention-memory-efficient", "softmax", {2, 2}},
                                             {"attention-lsh", "lsh", {1, 1}}};

std::vector<std::string> lsh_options() {
  return {"attention.rounds=2", concat_text("attention.chunk_length=", kChunk)};
}

Measurement make_attention_measurement(const Sweep& lengths, const ReproductionOptions& options) {
  Measurement measurement{
      .name = "attention",
      .columns = {{"time_attention", "time, attention alone", 2, true, true},
                  {"memory_attention", "memory, attention alone", 2}},
      .commands = {{"bench", "attention", "--config", "{config}", "--shortest",
                    std::to_string(lengths.values.front()), "--longest",
                    std::to_string(lengths.values.back()), "--repeats",
                    std::to_string(options.select_size("repeats", 1, 3, 5))}},
      .read_results =
          [](const std::vector<Json>& outputs, const Trial& trial) {
            Curve time{"time_attention", trial.row.name, {}}, memory{"memory_attention", trial.row.name, {}};
            for (const Json& row : outputs[0]["lengths"]) {
              const auto length = row["length"].get<double>();
              time.points.emplace_back(length, 1e3 * row["seconds"].get<double>());
              memory.points.emplace_back(length, row["peak_bytes"].get<double>() / kBytesPerMebibyte);
            }
            return MeasurementResults{.values = {{time.figure_name, fit_power_law_exponent(time.points)},
                                                 {memory.figure_name, fit_power_law_exponent(memory.points)}},
                                      .curves = {time, memory}};
          },
      .measures_first_seed_only = true};
  for (const AttentionType& type : kAttentionTypes) measurement.row_names.emplace_back(type.name);
  return measurement;
}

Row make_attention_row(const AttentionType& type, const Sweep& lengths) {
  Row row{.name = type.name,
          .fixed_settings = {"model.type=sequence", "data.dataset=copy", "data.batch_size=1", "train.steps=1",
                             "model.heads=4", concat_text("model.head_dim=", kWidth / 4),
                             concat_text("data.max_length=", lengths.values.back()),
                             concat_text("model.attention=", type.kind)},
          .paper_values = {{"time_attention", type.length.time}, {"memory_attention", type.length.memory}}};
  if (std::string_view(type.kind) == "lsh")
    for (const std::string& option : lsh_options()) row.fixed_settings.push_back(option);
  return row;
}

std::vector<std::string> settings_of(const Model& model, const std::vector<Sweep>& sweeps) {
  std::vector<std::string> settings = {"model.type=sequence",
                                       "data.dataset=copy",
                                       "data.batch_size=1",
                                       "train.steps=1",
                                       "model.layers=2",
                                       "model.heads=4",
                                       concat_text("model.head_dim=", kWidth / 4),
                                       concat_text("model.feedforward=", kWidth),
                                       "model.norm=pre",
                                       "model.dropout=0",
                                       concat_text("data.max_length=", sweeps[0].values.front()),
                                       model.reversible ? "model.reversible=true" : "model.reversible=false"};
  settings.emplace_back(model.lsh ? "model.attention=lsh" : "model.attention=softmax");
  if (model.lsh)
    for (const std::string& option : lsh_options()) settings.push_back(option);
  if (model.chunked)
    settings.push_back(concat_text("model.feedforward_chunks=", choose_chunks(sweeps[2].values.back())));
  return settings;
}

Table make_reformer_complexity_table(const ReproductionOptions& options) {
  const std::vector<Sweep> sweeps = sweeps_of(options);
  Table table{
      .title = "Reformer, tables 1 and 3: exponents of time and memory",
      .source =
          "\"Reformer\", tables 1 and 3. Time of a training step, and memory that the step adds to "
          "parameters and optimizer, fitted to the longer half of each sweep. The formulas: Transformer "
          "max(b l d_ff, b h l²) n; Reversible without n in the memory; Chunked Reversible with d_model "
          "for d_ff in the memory; LSH Transformer with l r c for l²; Reformer with all three.",
      .notes =
          {"Softmax attention works block by block here, so its memory is linear in the length; the "
           "formulas have l², which table 1 prints for memory-efficient attention too. No row stores all l² "
           "scores.",
           concat_text("Chunked models have ", choose_chunks(sweeps[2].values.back()),
                       " feed-forward chunks. LSH attention has 2 rounds and chunks of ", kChunk, ".")},
      .reference_label = "formula",
      .needs_training = false};
  for (const Sweep& sweep : sweeps) {
    table.measurements.push_back(sweep_measurement(sweep, options));
    const Axis x{sweep.label, Scale::log2};
    table.figures.push_back({column_name("time", sweep), "Training step", x, {"milliseconds", Scale::log10}});
    table.figures.push_back({column_name("memory", sweep), "Added memory", x, {"MiB", Scale::log10}});
  }
  table.measurements.push_back(make_attention_measurement(sweeps[0], options));
  const Axis length{sweeps[0].label, Scale::log2};
  table.figures.push_back({"time_attention", "Attention alone", length, {"milliseconds", Scale::log10}});
  table.figures.push_back({"memory_attention", "Memory of attention alone", length, {"MiB", Scale::log10}});
  for (const Model& model : kModels) {
    const Exponents formulas[] = {model.length, model.depth, model.feedforward};
    Row row{.name = model.name, .fixed_settings = settings_of(model, sweeps)};
    for (size_t i = 0; i < sweeps.size(); ++i) {
      row.paper_values.emplace_back(column_name("time", sweeps[i]), formulas[i].time);
      row.paper_values.emplace_back(column_name("memory", sweeps[i]), formulas[i].memory);
    }
    table.rows.push_back(row);
  }
  for (const AttentionType& type : kAttentionTypes) table.rows.push_back(make_attention_row(type, sweeps[0]));
  return table;
}

}  // namespace

Reproduction make_reformer_complexity_reproduction() {
  return {.name = "reformer-complexity",
          .summary = "Reformer, tables 1 and 3: time and memory of models by length, depth and width",
          .make_table = make_reformer_complexity_table,
          .measurement_options = {make_size_option("longest", "largest length"),
                                  make_size_option("deepest", "largest depth"),
                                  make_size_option("widest", "largest width of the feed-forward block"),
                                  make_size_option("repeats", "repeats for the median")},
          .config_keys = {"run.precision", "optimizer"}};
}

}  // namespace tapeformer
