// "Transformers are RNNs" (Katharopoulos et al. 2020), table 3: phone error rate and seconds per epoch. The
// models of table 3 are a bidirectional LSTM and Transformers with softmax, LSH and linear attention. The
// paper uses the corpus WSJ, which is not free. This reproduction uses CMU AN4 or the corpus in data.dataset,
// and reports the name of the corpus.
#include <array>
#include <cmath>
#include <filesystem>

#include "core/base/errors.h"
#include "train/bench/measure.h"
#include "train/metrics.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

struct PublishedRates {
  const char* name;
  double paper_per, paper_seconds;  // validation PER in percent and seconds per epoch, on WSJ
};

// The rows of the paper, and a bidirectional linear model that forgets, without published values.
constexpr std::array<PublishedRates, 5> kSpeechRows = {{{"bilstm", 10.94, 1047},
                                                        {"softmax", 5.12, 2711},
                                                        {"lsh-4", 9.33, 2250},
                                                        {"linear", 8.08, 824},
                                                        {"gated-delta", 0, 0}}};

// Settings for two CPU cores. All models have the same optimizer, schedule, batches and subsampling.
const std::vector<std::string> kSmallSpeech = {
    "data.max_frames=3000",  "model.subsampling=4",   "model.subsampling_kind=conv", "model.dropout=0.1",
    "train.epochs=100",      "train.keep_last=1",     "optimizer.kind=adam",         "optimizer.lr=2e-3",
    "optimizer.clip_norm=1", "schedule.kind=cosine",  "schedule.warmup_steps=100",   "data.spec_augment=true",
    "data.time_width=20",    "data.frequency_width=3"};
const std::vector<std::string> kSmokeSpeech = {"train.epochs=1", "data.limit=64", "schedule.warmup_steps=5",
                                               "data.eval_limit=20"};
const std::vector<std::string> kSmallLstm = {"model.layers=2", "model.hidden=96"};
const std::vector<std::string> kSmallTransformer = {"model.layers=3",        "model.heads=4",
                                                    "model.head_dim=32",     "model.feedforward=384",
                                                    "model.norm=pre",        "model.attention_dropout=0",
                                                    "model.positions=rotary"};

std::vector<std::string> speech_settings(const std::string& name, TableScale scale) {
  if (scale == TableScale::paper) return {};
  std::vector<std::string> all = kSmallSpeech;
  const auto& more = name == "bilstm" ? kSmallLstm : kSmallTransformer;
  all.insert(all.end(), more.begin(), more.end());
  if (name == "linear") all.push_back("attention.rotation=features");
  // Narrower than the others, because the layers have more projections.
  if (name == "gated-delta") all.push_back("model.feedforward=304");
  if (scale == TableScale::smoke) all.insert(all.end(), kSmokeSpeech.begin(), kSmokeSpeech.end());
  return all;
}

// Returns the lowest validation phone error rate, the median times per epoch, and the learning curves of a
// training run. The x values of `by_time` are cumulative CPU times in seconds, because wall-clock times
// depend on the load of the machine.
MeasurementResults read_learning_curve(const std::string& run_dir, const std::string& model) {
  std::vector<double> seconds, cpu_seconds;
  Curve by_epoch{"epochs", model, {}}, by_time{"time", model, {}};
  double cpu = 0;
  for (const MetricRecord& record : read_metrics(run_dir + "/" + kMetricsFileName)) {
    if (get_metric_text(record, "split") == "epoch") {
      seconds.push_back(get_metric_number(record, "seconds_per_epoch", 0));
      cpu_seconds.push_back(get_metric_number(record, "cpu_seconds_per_epoch", 0));
      cpu += cpu_seconds.back();
    }
    const double per = get_metric_number(record, "per", -1);
    if (per < 0) continue;
    by_epoch.points.emplace_back(static_cast<double>(seconds.size()), per);
    by_time.points.emplace_back(cpu, per);
  }
  double lowest = NAN;
  for (const auto& [epoch, per] : by_epoch.points) lowest = std::fmin(lowest, per);
  return {.values = {{"valid_per", lowest},
                     {"seconds_per_epoch", compute_median(seconds)},
                     {"cpu_seconds_per_epoch", compute_median(cpu_seconds)}},
          .curves = {by_epoch, by_time}};
}

std::string config_file(const ReproductionOptions& options, const std::string& name) {
  const std::string dataset = find_config_setting_value(options, "data.dataset");
  const std::string corpus = dataset.empty() ? "an4" : dataset == "synthetic-speech" ? "synthetic" : dataset;
  const std::string config = "speech/" + corpus + "-" + name + ".toml";
  if (!std::filesystem::exists(options.config_folder / config))
    throw ConfigError("data.dataset = \"" + dataset + "\" has no config " +
                      (options.config_folder / config).string());
  return config;
}

Table make_speech_table(const ReproductionOptions& options) {
  const std::string dataset = find_config_setting_value(options, "data.dataset");
  const Axis per{"validation PER, %"};
  Table table{
      .title = "Phone error rate on " + (dataset.empty() ? "an4" : dataset),
      .source =
          "\"Transformers are RNNs\", table 3. The paper: validation PER and seconds per epoch on WSJ, "
          "80 hours, which needs a licence. Only the order of the models is comparable.",
      .notes =
          {"PER counts the phones of utterances that a model cannot process as deletions. The next column "
           "is without these utterances."},
      .reference_label = "paper, WSJ",
      .rows = {},
      .measurements =
          {make_command_measurement(
               "test", {"eval", "{run}", "--checkpoint", "best", "--limit", "{limit}"},
               {{{.name = "test_per", .label = "PER, %"}, "per"},
                {{.name = "test_per_processed", .label = "PER without unprocessed, %"}, "per_processed"},
                {{.name = "unprocessed", .label = "unprocessed", .decimal_places = 0}, "unprocessed"},
                {{.name = "test_phones", .label = "phones", .decimal_places = 0, .is_printed = false},
                 "phones"}}),
           {.name = "curve",
            .columns =
                {{.name = "valid_per", .label = "validation PER, %"},
                 {.name = "cpu_seconds_per_epoch",
                  .label = "CPU s/epoch",
                  .decimal_places = 1,
                  .is_speed = true},
                 {.name = "seconds_per_epoch", .label = "s/epoch", .decimal_places = 1, .is_speed = true}},
            .read_results =
                [](const std::vector<Json>&, const Trial& trial) {
                  return read_learning_curve(trial.run_dir, trial.row.name);
                }}},
      .figures = {{"epochs", "Phone error rate", {"epoch"}, per},
                  {"time", "Phone error rate", {"processor seconds of training"}, per}}};
  for (const PublishedRates& row : kSpeechRows)
    table.rows.push_back({.name = row.name,
                          .config_path = config_file(options, row.name),
                          .default_settings = speech_settings(row.name, options.scale),
                          .paper_values = row.paper_per > 0
                                              ? NamedValues{{"valid_per", row.paper_per},
                                                            {"seconds_per_epoch", row.paper_seconds}}
                                              : NamedValues{}});
  return table;
}

}  // namespace

Reproduction make_speech_table_reproduction() {
  return {.name = "speech-table",
          .summary =
              "Transformers are RNNs, table 3: phone error rate and seconds per epoch, on AN4, spoken digits "
              "or synthetic speech",
          .make_table = make_speech_table,
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "model.encoder"}};
}

}  // namespace tapeformer
