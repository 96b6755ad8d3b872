// Recall and state tracking with small models of several attention kinds: multi-query associative recall of
// "Zoology" (Arora et al. 2023), parity, and the palindromes of "Kimi Linear" (Kimi Team 2025), section 5.1.
// Row KIND-TASK trains one model. The printed table shows the rows of an attention kind in a single line.
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

using RecallSettings = std::vector<std::string>;

struct RecallKind {
  const char *name, *attention;
  RecallSettings settings = {};  // besides model.attention
};

// To add a line to the table, add an attention kind here.
const std::vector<RecallKind> kRecallKinds = {
    {"softmax", "softmax"},
    {"linear", "linear"},
    {"lsh", "lsh", {"attention.chunk_length=32", "attention.rounds=2"}},
    {"gated-linear", "gated-linear"},
    {"gated-delta", "gated-delta"},
    {"delta-net", "gated-delta", {"attention.preset=delta-net"}},
    {"delta-net-negative",
     "gated-delta",
     {"attention.preset=delta-net", "attention.negative_eigenvalues=true"}}};

struct RecallTable {
  const char *name, *label;
  RecallSettings smoke, paper;  // settings that differ from the config of the task; the scale small has none
};

const std::vector<RecallTable> kRecallTasks = {
    {"mqar",
     "MQAR, %",
     {},
     {"data.max_length=256", "data.pairs=64", "data.min_pairs=4", "data.tokens=8192", "data.batch_size=64",
      "train.steps=20000"}},
    {"parity", "parity, %", {"data.test_length=64"}, {"train.steps=20000"}},
    {"palindrome",
     "palindrome, %",
     {"data.max_length=64"},
     {"data.max_length=256", "model.heads=2", "model.head_dim=128", "train.steps=20000"}}};

Measurement make_accuracy_measurement(const RecallTable& task) {
  const std::string name = task.name;
  OutputField accuracy = make_test_accuracy_field(), bits = make_test_bits_per_dim_field();
  accuracy.column = {.name = name + "_accuracy_percent", .label = task.label, .decimal_places = 1};
  bits.column = {.name = name + "_bits_per_token", .label = name + ", bits", .is_printed = false};
  return make_test_evaluation_measurement(name, {accuracy, bits});
}

Table make_recall_table(const ReproductionOptions& options) {
  Table table{
      .title = "Recall, parity and palindromes",
      .source =
          "Tasks of \"Zoology\" (MQAR), of \"Unlocking State-Tracking in Linear RNNs Through Negative "
          "Eigenvalues\" (parity) and of \"Kimi Linear\", section 5.1 (palindromes). The papers show "
          "curves and other models, and no figures for these sizes.",
      .notes = {
          "Accuracy of the predictions that count: the values of the queried keys, the parity "
          "of each prefix, and the reversed half.",
          "The models of parity have no positions, and are evaluated with longer sequences "
          "than those of the training.",
          "softmax and lsh can look up any token, and cannot count: parity needs a state. linear, "
          "gated-linear and gated-delta have states of constant size, which bound what they can recall. "
          "With positive eigenvalues, no linear state follows the parity of a long sequence; "
          "delta-net-negative has write strengths up to 2. gated-delta must unlearn its initial decay, which "
          "forgets the pairs, and delta-net has none.",
          "The column training, s is the time of the training on MQAR."}};
  Measurement curve = make_training_curve_measurement("loss");
  for (const RecallTable& task : kRecallTasks) table.measurements.push_back(make_accuracy_measurement(task));
  for (const RecallKind& kind : kRecallKinds)
    for (size_t i = 0; i < kRecallTasks.size(); ++i) {
      const RecallTable& task = kRecallTasks[i];
      Row row{.name = std::string(kind.name) + "-" + task.name,
              .config_path = std::string("recall/") + task.name + ".toml",
              .default_settings = options.select_by_scale(task.smoke, {}, task.paper),
              .fixed_settings = kind.settings,
              .line_name = kind.name};
      row.fixed_settings.push_back(std::string("model.attention=") + kind.attention);
      if (options.scale == TableScale::smoke)
        for (const char* setting : {"train.steps=20", "data.eval_limit=50"})
          row.default_settings.emplace_back(setting);
      table.measurements[i].row_names.push_back(row.name);
      if (i == 0) curve.row_names.push_back(row.name);
      table.rows.push_back(row);
    }
  table.measurements.push_back(curve);
  table.figures = {{"loss", "MQAR", {"training step"}, {"cross-entropy, nats", Scale::linear}}};
  return table;
}

}  // namespace

Reproduction make_recall_table_reproduction() {
  return {.name = "recall-table",
          .summary = "recall and state tracking: accuracy on MQAR, parity and palindromes",
          .make_table = make_recall_table,
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "data.dataset"}};
}

}  // namespace tapeformer
