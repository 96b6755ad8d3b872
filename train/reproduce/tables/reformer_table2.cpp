// "Reformer" (Kitaev et al. 2020), table 2: accuracy of one-layer models on the duplication task. Each model
// is trained with one form of attention, such as LSH attention with 4 hash rounds, and is then evaluated with
// several forms of attention.
#include <array>

#include "core/base/errors.h"
#include "train/reproduce/measurements.h"

namespace tapeformer {
namespace {

// Values of TrainedModel::rounds for exact attention. kFull selects LSH attention with a single chunk, which
// needs no hashing. kFullRaw selects softmax attention in which the queries are also the keys. Unlike LSH
// attention, kFullRaw does not normalise the keys, and each query also attends to its own position.
constexpr int64_t kFull = 0, kFullRaw = -1;

struct TrainedModel {
  int64_t rounds;             // number of hash rounds in training; kFull or kFullRaw for exact attention
  std::vector<double> paper;  // published accuracies in percent, in the order of kEvaluated
};

constexpr std::array<int64_t, 6> kEvaluated = {kFull, 8, 4, 2, 1, kFullRaw};
const std::vector<TrainedModel> kTrained = {{kFull, {100, 94.8, 92.5, 76.9, 52.5}},
                                            {4, {0.8, 100, 99.9, 99.4, 91.9}},
                                            {2, {0.8, 100, 99.9, 98.1, 86.8}},
                                            {1, {0.8, 99.9, 99.6, 94.8, 77.9}},
                                            {kFullRaw, {}}};

std::string name_of(int64_t rounds) {
  if (rounds == kFullRaw) return "full-raw";
  return rounds == kFull ? "full" : "lsh-" + std::to_string(rounds);
}

std::vector<std::string> settings_of(const Config& base, int64_t rounds) {
  const auto text = [](const char* key, int64_t value) {
    return "attention." + std::string(key) + "=" + std::to_string(value);
  };
  if (rounds == kFullRaw) return {"model.attention=shared-softmax"};
  if (rounds == kFull)
    return {"model.attention=lsh", text("chunk_length", base.data.get<int64_t>("max_length")),
            text("buckets", 0)};
  return {"model.attention=lsh", text("rounds", rounds),
          text("chunk_length", base.attention.at("lsh").get<int64_t>("chunk_length")),
          text("buckets", base.attention.at("lsh").get<int64_t>("buckets"))};
}

Table make_reformer_table2(const ReproductionOptions& options) {
  const std::string config = options.select_by_scale(
      "reformer/duplication-smoke.toml", "reformer/duplication-small.toml", "reformer/duplication.toml");
  const std::vector<std::string> smoke = {"train.steps=60", "data.eval_limit=100"};
  const std::vector<std::string> defaults = options.select_by_scale(smoke, {}, {});
  const Config base =
      make_row_config(options, {.name = "base", .config_path = config, .default_settings = defaults}, 1);
  const auto chunk = base.attention.at("lsh").get<int64_t>("chunk_length");
  if (chunk < 1 || chunk >= base.data.get<int64_t>("max_length"))
    throw ConfigError(concat_text("attention.chunk_length = ", chunk, ": this table needs 1 to ",
                                  base.data.get<int64_t>("max_length") - 1, ", less than data.max_length"));
  Table table{.title = "Reformer, table 2: duplication task",
              .source =
                  "\"Reformer\", table 2: accuracy of the second half in percent. Rows: attention in "
                  "training; columns: attention in evaluation.",
              .notes = {concat_text("Sequences of ", base.data.get<int64_t>("max_length"),
                                    " (paper: 1,024), chunks of ", chunk, ", ", base.train.steps,
                                    " steps of ", base.data.batch_size, " (150,000; batch not stated).")},
              .rows = {},
              .measurements = {},
              .figures = {}};
  for (const int64_t rounds : kEvaluated) {
    const Column column{.name = name_of(rounds), .label = name_of(rounds), .decimal_places = 1};
    table.measurements.push_back(make_test_evaluation_measurement(
        name_of(rounds), {{column, "accuracy", 100}}, settings_of(base, rounds)));
  }
  table.measurements.push_back(make_training_curve_measurement("loss"));
  table.figures = {{"loss", "Duplication task", {"training step"}, {"cross-entropy, nats", Scale::log10}}};
  for (const TrainedModel& trained : kTrained) {
    Row row{.name = "trained-" + name_of(trained.rounds),
            .config_path = config,
            .default_settings = defaults,
            .fixed_settings = settings_of(base, trained.rounds)};
    for (size_t i = 0; i < trained.paper.size(); ++i)
      row.paper_values.emplace_back(name_of(kEvaluated[i]), trained.paper[i]);
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace

Reproduction make_reformer_table2_reproduction() {
  return {.name = "reformer-table2",
          .summary = "Reformer, table 2: duplication task, trained and evaluated with different hash rounds",
          .make_table = make_reformer_table2,
          .config_keys = list_training_config_tables(),
          .reserved_keys = {"model.attention", "attention.rounds", "data.dataset"}};
}

}  // namespace tapeformer
