// "Reformer" (Kitaev et al. 2020), figure 5, right: seconds per training step at several sequence lengths,
// with a constant number of tokens per step.
#include "core/base/errors.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

// Seconds per step at lengths of 1,024 and 32,768 tokens, read from the figure of the paper.
struct PublishedSpeeds {
  const char* name;
  std::vector<std::string> settings;
  double at_1024, at_32768;
};

const std::vector<PublishedSpeeds> kSpeedRows = {{"full", {"model.attention=softmax"}, 0.17, 3.6},
                                                 {"lsh-8", {"attention.rounds=8"}, 0.32, 0.43},
                                                 {"lsh-4", {"attention.rounds=4"}, 0.20, 0.23},
                                                 {"lsh-2", {"attention.rounds=2"}, 0.15, 0.13},
                                                 {"lsh-1", {"attention.rounds=1"}, 0.10, 0.075}};

std::string column_at(int64_t length) {
  return concat_text("seconds_", length);
}

MeasurementResults read_speed_results(const std::vector<Json>& outputs, const Trial& trial) {
  MeasurementResults measured;
  Curve curve{"seconds", trial.row.name, {}};
  for (const Json& output : outputs) {
    const auto length = output["length"].get<int64_t>();
    const auto seconds = output["seconds_per_step"].get<double>();
    curve.points.emplace_back(static_cast<double>(length), seconds);
    measured.values.emplace_back(column_at(length), seconds);
  }
  measured.values.emplace_back("exponent", fit_power_law_exponent(curve.points));
  measured.curves = {curve};
  return measured;
}

Table make_reformer_speed_table(const ReproductionOptions& options) {
  const int64_t shortest = options.select_size("shortest", 128, 1024, 1024),
                tokens = options.select_size("tokens", 512, 16384, 32768);
  Table table{
      .title = "Reformer, figure 5: seconds per step at constant tokens",
      .source = "\"Reformer\", figure 5, right. The published values are read from the figure.",
      .notes = {concat_text("A step of ", tokens,
                            " tokens (paper: 32,768) of the model in "
                            "configs/reformer/duplication.toml. The paper does not state its model and "
                            "its device, so only the growth with the length is comparable.")},
      .needs_training = false,
      .figures = {{"seconds",
                   "Training step at constant tokens",
                   {"length", Scale::log2},
                   {"seconds", Scale::log10}}}};
  Measurement steps{.name = "steps", .read_results = read_speed_results, .measures_first_seed_only = true};
  for (const int64_t length : list_doubled_lengths("tokens", shortest, tokens)) {
    steps.columns.push_back({column_at(length), concat_text("s at ", length), 3, true, true});
    steps.commands.push_back({"bench", "train-step", "--config", "{config}", "--repeats",
                              std::to_string(options.select_size("repeats", 1, 3, 5)), "--set",
                              concat_text("data.max_length=", length), "--set",
                              concat_text("model.axial_shape=[", length, "]"), "--set",
                              concat_text("data.batch_size=", tokens / length)});
  }
  steps.columns.push_back({"exponent", "exponent", 2, true, true});
  table.measurements = {steps};
  for (const PublishedSpeeds& row : kSpeedRows)
    table.rows.push_back(
        {.name = row.name,
         .config_path = "reformer/duplication.toml",
         .fixed_settings = row.settings,
         .paper_values = {{column_at(1024), row.at_1024}, {column_at(32768), row.at_32768}}});
  return table;
}

}  // namespace

Reproduction make_reformer_speed_reproduction() {
  return {.name = "reformer-speed",
          .summary = "Reformer, figure 5: seconds per step at constant tokens, full and LSH attention",
          .make_table = make_reformer_speed_table,
          .measurement_options = {make_size_option("shortest", "smallest length"),
                                  make_size_option("tokens", "tokens of a step"),
                                  make_size_option("repeats", "repeats for the median")},
          .config_keys = {"model", "attention", "optimizer", "run.precision", "run.tf32"},
          .reserved_keys = {"model.attention", "attention.rounds", "model.axial_shape"}};
}

}  // namespace tapeformer
