// "Transformers are RNNs" (Katharopoulos et al. 2020), table 5: seconds per image on the CPU with the models
// of the paper. Speeds do not depend on the weights, so the models are not trained.
#include "core/base/errors.h"
#include "train/build.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

struct PaperSpeeds {
  const char *name, *config;
  double cached, recomputed;  // seconds per image; 0: not published
};

// "cached" is the recurrent form of linear attention, and the cache of keys and values of softmax attention.
constexpr PaperSpeeds kPaperSpeeds[] = {{"mnist-softmax", "mnist/softmax.toml", 7.4, 72.6},
                                        {"mnist-lsh-1", "mnist/lsh-1.toml", 0, 46.0},
                                        {"mnist-lsh-4", "mnist/lsh-4.toml", 0, 112.0},
                                        {"mnist-linear", "mnist/linear.toml", 5.5, 0},
                                        {"cifar10-softmax", "cifar10/softmax.toml", 71.9, 8651.4},
                                        {"cifar10-lsh-1", "cifar10/lsh-1.toml", 0, 2318.9},
                                        {"cifar10-lsh-4", "cifar10/lsh-4.toml", 0, 5263.7},
                                        {"cifar10-linear", "cifar10/linear.toml", 45.1, 0}};
constexpr const char* kSmokeModel[] = {"data.downscale=4", "model.layers=1", "model.heads=1",
                                       "model.feedforward=16", "attention.buckets=16"};

NamedValues list_published_times(const PaperSpeeds& speeds) {
  NamedValues times;
  if (speeds.cached > 0) times.emplace_back("recurrent_seconds_per_image", speeds.cached);
  if (speeds.recomputed > 0) times.emplace_back("recompute_seconds_per_image", speeds.recomputed);
  return times;
}

// Measures the time of an image in a mode of `bench generate`, and the time in the paper divided by it.
// Recomputation is timed at `positions` positions.
Measurement make_image_time_measurement(const std::string& mode, const std::string& label,
                                        int64_t positions) {
  const std::string name = mode + "_seconds_per_image", ratio = mode + "_ratio";
  Measurement measurement{
      .name = mode,
      .columns = {{name, "s/image at batch 1, " + label, 2, true, true},
                  {ratio, "paper / ours, " + label, 1, true, true}},
      .make_trial_commands =
          [mode, positions](const Trial& trial) {
            return std::vector<Words>{{"bench", "generate", "--config", "{config}", "--mode", mode, "--batch",
                                       "1", "--repeats", "1", "--positions",
                                       std::to_string(mode == "recompute" ? positions : 0), "--tokens",
                                       std::to_string(get_dataset_info(trial.config).length - 1)}};
          },
      .read_results =
          [name, ratio](const std::vector<Json>& outputs, const Trial& trial) {
            const Json& output = outputs[0];
            const double seconds = output["cases"].back()["milliseconds_per_token"].get<double>() / 1e3 *
                                   output["tokens"].get<double>();
            MeasurementResults results{.values = {{name, seconds}}};
            for (const auto& [column, paper] : trial.row.paper_values)
              if (column == name) results.values.emplace_back(ratio, paper / seconds);
            return results;
          },
      .measures_first_seed_only = true};
  for (const PaperSpeeds& row : kPaperSpeeds)
    if ((mode == "recompute" ? row.recomputed : row.cached) > 0) measurement.row_names.emplace_back(row.name);
  return measurement;
}

Table make_image_speeds_table(const ReproductionOptions& options) {
  const int64_t positions = options.select_size("positions", 2, 16, 64);
  Table table{
      .title = "Seconds per image on the CPU, models of the paper",
      .source = "\"Transformers are RNNs\", table 5.",
      .notes = {concat_text(
                    "Recomputation is timed at ", positions,
                    " evenly spaced positions, and the time of an image is their mean times the number of "
                    "positions (measure.positions: more, up to all)."),
                "The weights are those of the initialisation. The cases run with all threads."},
      .needs_training = false,
      .measurements = {make_image_time_measurement("recurrent", "cached or recurrent", positions),
                       make_image_time_measurement("recompute", "recomputed", positions)}};
  for (const PaperSpeeds& speeds : kPaperSpeeds) {
    Row row{.name = speeds.name, .config_path = speeds.config};
    if (options.scale == TableScale::smoke)  // another model, which is not comparable
      row.default_settings.assign(std::begin(kSmokeModel), std::end(kSmokeModel));
    else
      row.paper_values = list_published_times(speeds);
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace

Reproduction make_image_speeds_reproduction() {
  return {
      .name = "image-speeds",
      .summary = "seconds per MNIST and CIFAR-10 image of the paper's models on the CPU, without trainings",
      .make_table = make_image_speeds_table,
      .measurement_options = {make_size_option("positions", "timed positions of recomputation")},
      .config_keys = {"model", "attention", "run.precision", "run.tf32"}};
}

}  // namespace tapeformer
