// "Transformers are RNNs" (Katharopoulos et al. 2020), figure 2: training loss of softmax, linear and LSH
// attention on the copy task.
#include <algorithm>

#include "train/metrics.h"
#include "train/reproduce/chart.h"
#include "train/reproduce/reproduce.h"

namespace tapeformer {
namespace {

// Settings with a quarter of the length and half of the width in the paper. The number of LSH chunks is four,
// as in the paper.
const std::vector<std::string> kSmokeCopy = {
    "data.max_length=32", "data.batch_size=32",        "data.eval_limit=200", "model.head_dim=16",
    "model.dropout=0",    "model.attention_dropout=0", "train.steps=3000",    "model.feedforward=512",
    "train.log_every=20", "schedule.step_at=[2000]",   "train.keep_last=1"};
const std::vector<std::string> kSmokeChunks = {"attention.chunk_length=8", "attention.buckets=16"};

// A config in configs/copy.
struct CopyConfig {
  std::string name;
  std::vector<std::string> smoke_settings;
};
const std::vector<CopyConfig> kCopyConfigs = {
    {"softmax", {}}, {"linear", {}}, {"lsh-1", kSmokeChunks}, {"lsh-4", kSmokeChunks}};

std::vector<std::string> copy_settings(const CopyConfig& config, bool paper) {
  if (paper) return {};
  std::vector<std::string> all = kSmokeCopy;
  all.insert(all.end(), config.smoke_settings.begin(), config.smoke_settings.end());
  return all;
}

bool is_training(const MetricRecord& record) {
  return std::find(record.begin(), record.end(), MetricRecord::value_type{"split", std::string("train")}) !=
         record.end();
}

Report reproduce_copy_convergence(const ReproductionOptions& options) {
  std::vector<Training> trainings;
  for (const CopyConfig& config : kCopyConfigs)
    trainings.push_back({.name = config.name,
                         .config = "copy/" + config.name + ".toml",
                         .defaults = copy_settings(config, options.paper),
                         .fixed = {}});
  check_settings(options, trainings);
  Chart chart{
      .title = "Copy task", .x = {"training step"}, .y = {"cross-entropy, nats", Scale::log10}, .series = {}};
  std::vector<Report> rows;
  std::vector<CsvRow> csv = {{"attention", "step", "loss_nats"}};
  for (const Training& training : trainings) {
    const std::string& kind = training.name;
    const FinishedRun run = train_run(options, training);
    const Evaluation evaluation = evaluate_run(options, run, {});
    Series series{.name = kind, .points = {}};
    for (const MetricRecord& record : read_metrics(run.path + "/metrics.jsonl")) {
      if (!is_training(record)) continue;
      const double step = metric_number(record, "step", 0), loss = metric_number(record, "loss_nats", 0);
      series.points.emplace_back(step, loss);
      csv.push_back({kind, csv_number(step), csv_number(loss)});
    }
    chart.series.push_back(series);
    rows.push_back(Report()
                       .add("attention", kind)
                       .add("steps", run.steps)
                       .add("seconds", run.seconds)
                       .add("test_loss_nats", evaluation.nats_per_dim)
                       .add("test_accuracy_percent", 100 * evaluation.accuracy));
  }
  write_csv(options.out / "copy-convergence.csv", csv);
  write_chart(options.out / "copy-convergence", chart);
  return Report().add("runs", rows);
}

}  // namespace

Reproduction copy_convergence_reproduction() {
  return {.name = "copy-convergence",
          .summary =
              "Transformers are RNNs, figure 2: loss of softmax, linear and LSH attention on the copy task",
          .run = reproduce_copy_convergence,
          .config_keys = training_keys(),
          .own_keys = {"model.attention", "data.dataset"}};
}

}  // namespace tapeformer
