// "Transformers are RNNs" (Katharopoulos et al. 2020), figure 2: training loss of softmax, linear and LSH
// attention on the copy task.
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

// Settings with a quarter of the sequence length and half of the width of the paper. As in the paper, a
// sequence has four LSH chunks.
const std::vector<std::string> kQuarterSize = {
    "data.max_length=32",    "data.batch_size=32", "data.eval_limit=200",
    "model.head_dim=16",     "model.dropout=0",    "model.attention_dropout=0",
    "model.feedforward=512", "train.log_every=20", "schedule.step_at=[2000]",
    "train.keep_last=1",     "train.steps=3000",   "attention.chunk_length=8",
    "attention.buckets=16"};
const std::vector<std::string> kSmoke = {"train.steps=40", "schedule.step_at=[30]"};
const std::vector<std::string> kFullSize = {"train.keep_last=1", "data.eval_limit=1000"};

Table copy_convergence(const ReproductionOptions& options) {
  std::vector<std::string> settings = options.select_by_scale(kQuarterSize, kFullSize, kFullSize);
  if (options.scale == TableScale::smoke) settings.insert(settings.end(), kSmoke.begin(), kSmoke.end());
  Table table{.title = "Copy task",
              .source =
                  "\"Transformers are RNNs\", figure 2: the loss of softmax, linear and LSH attention. "
                  "The paper shows curves and no figures.",
              .notes = {"In training, only softmax attention has dropout of attention weights (0.1)."},
              .rows = {},
              .measurements = {make_test_evaluation_measurement(
                                   "test", {make_test_accuracy_field(), make_test_loss_field()}),
                               make_training_curve_measurement("loss")},
              .figures = {{"loss", "Copy task", {"training step"}, {"cross-entropy, nats", Scale::log10}}}};
  if (options.scale == TableScale::smoke)
    table.notes.emplace_back(
        "With the default settings of this scale, sequences have 32 symbols (paper: 128), the width is 128 "
        "(paper: 256), and training has 40 steps with batches of 32 (paper: 10,000 steps with batches of "
        "64).");
  for (const char* kind : {"softmax", "linear", "lsh-1", "lsh-4"})
    table.rows.push_back(
        {.name = kind, .config_path = "copy/" + std::string(kind) + ".toml", .default_settings = settings});
  return table;
}

}  // namespace

Reproduction make_copy_convergence_reproduction() {
  return {.name = "copy-convergence",
          .summary =
              "Transformers are RNNs, figure 2: loss of softmax, linear and LSH attention on the copy task",
          .make_table = copy_convergence,
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "data.dataset"}};
}

}  // namespace tapeformer
