// "Transformers are RNNs" (Katharopoulos et al. 2020), table 3: phone error rate and seconds per epoch of a
// bidirectional LSTM and of softmax, LSH and linear attention. The corpus of the paper, WSJ, is not free.
// This reproduction uses CMU AN4 or the corpus in data.dataset, and reports its name.
#include <algorithm>
#include <array>

#include "core/errors.h"
#include "train/inference/run.h"
#include "train/metrics.h"
#include "train/reproduce/chart.h"
#include "train/reproduce/reproduce.h"
#include "train/tasks/speech/evaluate.h"

namespace tapeformer {
namespace {

struct PublishedRow {
  const char* name;
  double paper_per, paper_seconds;  // validation PER in percent and seconds per epoch, on WSJ
};

constexpr std::array<PublishedRow, 4> kRows = {
    {{"bilstm", 10.94, 1047}, {"softmax", 5.12, 2711}, {"lsh-4", 9.33, 2250}, {"linear", 8.08, 824}}};

// Settings for a short run on two CPU cores. All models have the same optimizer, schedule and batches.
const std::vector<std::string> kSmokeSpeech = {
    "data.max_frames=3000", "model.subsampling=2",      "model.dropout=0.1", "train.epochs=8",
    "optimizer.kind=adam",  "optimizer.lr=2e-3",        "train.keep_last=1", "optimizer.clip_norm=1",
    "schedule.kind=cosine", "schedule.warmup_steps=100"};
const std::vector<std::string> kSmokeLstm = {"model.layers=2", "model.hidden=96"};
const std::vector<std::string> kSmokeTransformer = {"model.layers=3",    "model.heads=4",
                                                    "model.head_dim=32", "model.feedforward=384",
                                                    "model.norm=pre",    "model.attention_dropout=0"};

std::vector<std::string> speech_settings(const std::string& name, bool paper) {
  if (paper) return {};
  std::vector<std::string> all = kSmokeSpeech;
  const auto& more = name == "bilstm" ? kSmokeLstm : kSmokeTransformer;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Measurements of each epoch of a training run. Models are compared by processor time, because the models are
// trained one after another and wall-clock time depends on other load on the machine.
struct LearningCurve {
  std::vector<double> epoch_seconds, epoch_cpu_seconds;
  std::vector<std::pair<double, double>> per_by_epoch, per_by_time;  // time: processor seconds of training
};

LearningCurve read_curve(const std::string& run_dir) {
  LearningCurve curve;
  double cpu = 0;
  for (const MetricRecord& record : read_metrics(run_dir + "/metrics.jsonl")) {
    const double seconds = metric_number(record, "seconds_per_epoch", -1);
    if (seconds >= 0) {
      curve.epoch_seconds.push_back(seconds);
      curve.epoch_cpu_seconds.push_back(metric_number(record, "cpu_seconds_per_epoch", 0));
      cpu += curve.epoch_cpu_seconds.back();
    }
    const double per = metric_number(record, "per", -1);
    if (per < 0) continue;
    curve.per_by_epoch.emplace_back(static_cast<double>(curve.epoch_seconds.size()), per);
    curve.per_by_time.emplace_back(cpu, per);
  }
  return curve;
}

// Returns the upper median.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the value of a key on the command line without the quotes of a TOML string; "" if it is not set.
// The last setting applies.
std::string setting(const ReproductionOptions& options, const std::string& key) {
  const char* const around = " \t\"'";
  std::string value;
  for (const std::string& set : options.overrides.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || set.substr(0, set.find_first_of(" \t=")) != key) continue;
    const size_t first = set.find_first_not_of(around, equals + 1);
    value = first == std::string::npos ? "" : set.substr(first, set.find_last_not_of(around) - first + 1);
  }
  return value;
}

// Returns the config file of a model for the corpus in data.dataset. Model sizes, parts and features depend
// on the corpus.
std::string config_file(const ReproductionOptions& options, const std::string& name) {
  const std::string dataset = setting(options, "data.dataset");
  const std::string corpus = dataset.empty() ? "an4" : dataset == "synthetic-speech" ? "synthetic" : dataset;
  const std::string config = "speech/" + corpus + "-" + name + ".toml";
  if (!std::filesystem::exists(options.configs / config))
    throw ConfigError("data.dataset = \"" + dataset + "\" has no config " +
                      (options.configs / config).string());
  return config;
}

std::vector<Training> trainings_of(const ReproductionOptions& options) {
  std::vector<Training> trainings;
  for (const PublishedRow& row : kRows)
    trainings.push_back({.name = row.name,
                         .config = config_file(options, row.name),
                         .defaults = speech_settings(row.name, options.paper),
                         .fixed = {}});
  check_settings(options, trainings);
  return trainings;
}

struct ModelResult {
  Config config;  // config of the training run, with the data set
  SpeechEvaluation test;
  LearningCurve curve;

  double lowest_validation_per() const {
    double lowest = curve.per_by_epoch.empty() ? test.score.error_rate() : curve.per_by_epoch.front().second;
    for (const auto& [epoch, per] : curve.per_by_epoch) lowest = std::min(lowest, per);
    return lowest;
  }
};

// Trains a model and evaluates its best checkpoint on the test part.
ModelResult train_and_test(const ReproductionOptions& options, const Training& training) {
  const FinishedRun trained = train_run(options, training);
  const LoadedSpeechRun best = load_speech_run(
      find_run({.path = trained.path, .checkpoint = "best", .sets = {}, .device = options.device}));
  Config config = best.config;
  config.data.eval_limit = trained.config.data.eval_limit;
  config.data.feature_cache = trained.config.data.feature_cache;
  const SpeechPart test_part = make_speech_part(config, "test", options.data, &best.description);
  SpeechEvaluation test = until_stopped(options, [&](const StopCheck& stop) {
    return evaluate(*best.model, test_part, evaluation_options(config), stop,
                    *options.processes.communicator);
  });
  return {trained.config, std::move(test), read_curve(trained.path)};
}

Report report_row(const PublishedRow& row, const ModelResult& result) {
  const SpeechEvaluation& test = result.test;
  return Report()
      .add("model", row.name)
      .add("test_per", test.score.error_rate())
      .add("test_per_processed", test.processed.error_rate())
      .add("test_phones", test.score.reference)
      .add("test_unprocessed", static_cast<int64_t>(test.unprocessed.size()))
      .add("valid_per", result.lowest_validation_per())
      .add("seconds_per_epoch", median(result.curve.epoch_seconds))
      .add("cpu_seconds_per_epoch", median(result.curve.epoch_cpu_seconds))
      .add("epochs", static_cast<int64_t>(result.curve.epoch_seconds.size()))
      .add("paper_wsj_per", row.paper_per)
      .add("paper_wsj_seconds", row.paper_seconds)
      .add("seed", result.config.run.seed);
}

const CsvRow kCsvTitle = {"model",
                          "corpus",
                          "test_per_percent",
                          "test_per_processed_percent",
                          "test_phones",
                          "test_unprocessed_utterances",
                          "best_valid_per_percent",
                          "seconds_per_epoch",
                          "cpu_seconds_per_epoch",
                          "epochs",
                          "paper_wsj_per_percent",
                          "paper_wsj_seconds_per_epoch",
                          "seed"};

CsvRow csv_row(const PublishedRow& row, const ModelResult& result) {
  const SpeechEvaluation& test = result.test;
  return {row.name,
          result.config.data.dataset,
          csv_number(test.score.error_rate()),
          csv_number(test.processed.error_rate()),
          std::to_string(test.score.reference),
          std::to_string(test.unprocessed.size()),
          csv_number(result.lowest_validation_per()),
          csv_number(median(result.curve.epoch_seconds)),
          csv_number(median(result.curve.epoch_cpu_seconds)),
          std::to_string(result.curve.epoch_seconds.size()),
          csv_number(row.paper_per),
          csv_number(row.paper_seconds),
          std::to_string(result.config.run.seed)};
}

Report reproduce_speech_table(const ReproductionOptions& options) {
  const std::vector<Training> trainings = trainings_of(options);
  Chart by_epoch{.title = "", .x = {"epoch"}, .y = {"validation PER, %"}, .series = {}};
  Chart by_time = by_epoch;
  by_time.x = {"processor seconds of training"};
  std::vector<Report> rows;
  std::vector<CsvRow> csv = {kCsvTitle};
  std::string corpus;
  for (size_t r = 0; r < kRows.size(); ++r) {
    const PublishedRow& row = kRows[r];
    const ModelResult result = train_and_test(options, trainings[r]);
    corpus = result.config.data.dataset;
    rows.push_back(report_row(row, result));
    csv.push_back(csv_row(row, result));
    by_epoch.series.push_back({.name = row.name, .points = result.curve.per_by_epoch});
    by_time.series.push_back({.name = row.name, .points = result.curve.per_by_time});
  }
  by_epoch.title = by_time.title = "Phone error rate on " + corpus;
  write_csv(options.out / "speech-table.csv", csv);
  write_chart(options.out / "speech-table", by_epoch);
  write_chart(options.out / "speech-table-time", by_time);
  return Report().add("corpus", corpus).add("paper_corpus", "WSJ, 80 hours").add("models", rows);
}

}  // namespace

Reproduction speech_table_reproduction() {
  return {.name = "speech-table",
          .summary =
              "Transformers are RNNs, table 3: phone error rate and seconds per epoch, on AN4, spoken digits "
              "or synthetic speech",
          .run = reproduce_speech_table,
          .config_keys = training_keys(),
          .own_keys = {"model.attention", "model.encoder"}};
}

}  // namespace tapeformer
