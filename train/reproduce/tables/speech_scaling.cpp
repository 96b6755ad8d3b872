// The time and memory of a training step on speech at several lengths of the utterances, with a fixed number
// of frames per step. The models follow "Transformers are RNNs" (Katharopoulos et al. 2020), section 4.3. The
// utterances of the paper have 800 frames on average and at most 2,400.
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

Table make_speech_scaling_table(const ReproductionOptions& options) {
  const int64_t shortest = options.select_size("shortest", 100, 300, 300),
                longest = options.select_size("longest", 400, 2400, 4800),
                frames = options.select_size("frames", 400, 4800, 9600),
                repeats = options.select_size("repeats", 1, 3, 5);
  const std::vector<int64_t> lengths = list_doubled_lengths("longest", shortest, longest);
  const Words command = {"bench",      "speech-step",
                         "--config",   "{config}",
                         "--shortest", std::to_string(shortest),
                         "--longest",  std::to_string(longest),
                         "--frames",   std::to_string(frames),
                         "--repeats",  std::to_string(repeats)};
  Table table{.title = "Training on speech by the length of utterances",
              .source =
                  "Models of \"Transformers are RNNs\", table 3: a training step and the memory that it "
                  "adds. The paper has no such table.",
              .notes = {concat_text("A step has ", frames, " frames in utterances of equal length.")},
              .needs_training = false,
              .rows = {},
              .measurements = {{.name = "step",
                                .columns = make_scaling_columns(lengths),
                                .commands = {command},
                                .read_results =
                                    [](const std::vector<Json>& outputs, const Trial& trial) {
                                      return read_scaling_results(outputs[0]["lengths"], trial.row.name);
                                    },
                                .measures_first_seed_only = true}},
              .figures = make_scaling_figures("Training step on speech", "frames of an utterance")};
  const std::vector<std::string> smoke = {"model.layers=2", "model.hidden=64", "model.head_dim=8",
                                          "model.feedforward=96"};
  for (const char* model : {"bilstm", "softmax", "lsh-4", "linear"})
    table.rows.push_back({.name = model,
                          .config_path = "speech/an4-" + std::string(model) + ".toml",
                          .default_settings = options.select_by_scale(smoke, {}, {})});
  return table;
}

}  // namespace

Reproduction make_speech_scaling_reproduction() {
  return {
      .name = "speech-scaling",
      .summary = "time of a training step on speech by the length of utterances, for the models of table 3",
      .make_table = make_speech_scaling_table,
      .measurement_options = {make_size_option("shortest", "frames of the shortest utterances"),
                              make_size_option("longest", "frames of the longest utterances"),
                              make_size_option("frames", "frames of a step"),
                              make_size_option("repeats", "repeats for the median")},
      .config_keys = {"model", "attention", "optimizer", "run.precision", "run.tf32"},
      .reserved_keys = {"model.attention", "model.encoder", "model.max_frames"}};
}

}  // namespace tapeformer
