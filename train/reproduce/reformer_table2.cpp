// "Reformer" (Kitaev et al. 2020), table 2: accuracy on the duplication task of one-layer models that are
// trained with one number of hash rounds and evaluated with other numbers. Full attention is LSH attention
// with one chunk, which is exact.
#include <array>

#include "train/build.h"
#include "train/reproduce/chart.h"
#include "train/reproduce/reproduce.h"

namespace tapeformer {
namespace {

constexpr int64_t kFull = 0;  // number of rounds that stands for full attention

struct TrainedModel {
  int64_t rounds;
  std::array<double, 5> paper;  // published accuracy in percent, in the order of kEvaluated
};

constexpr std::array<int64_t, 5> kEvaluated = {kFull, 8, 4, 2, 1};
constexpr std::array<TrainedModel, 4> kTrained = {{{kFull, {100, 94.8, 92.5, 76.9, 52.5}},
                                                   {4, {0.8, 100, 99.9, 99.4, 91.9}},
                                                   {2, {0.8, 100, 99.9, 98.1, 86.8}},
                                                   {1, {0.8, 99.9, 99.6, 94.8, 77.9}}}};

std::string name_of(int64_t rounds) {
  return rounds == kFull ? "full" : "lsh-" + std::to_string(rounds);
}

Report reproduce_reformer_table2(const ReproductionOptions& options) {
  const std::string config = options.paper ? "reformer/duplication.toml" : "reformer/duplication-smoke.toml";
  const Config base = config_of(options, {.name = "base", .config = config, .defaults = {}, .fixed = {}});
  const auto chunk = base.attention.at("lsh").get<int64_t>("chunk_length");
  if (chunk < 1 || chunk >= base.data.max_length)
    throw ConfigError(concat_text("attention.chunk_length = ", chunk, ": this table needs 1 to ",
                                  base.data.max_length - 1, ", less than data.max_length"));
  const auto settings = [&](int64_t rounds) {
    const auto text = [](const char* key, int64_t value) {
      return "attention." + std::string(key) + "=" + std::to_string(value);
    };
    // A single chunk needs no hashing.
    if (rounds == kFull) return std::vector{text("chunk_length", base.data.max_length), text("buckets", 0)};
    return std::vector{text("rounds", rounds), text("chunk_length", chunk),
                       text("buckets", base.attention.at("lsh").get<int64_t>("buckets"))};
  };
  std::vector<Training> trainings;
  for (const TrainedModel& trained : kTrained)
    trainings.push_back({.name = "trained-" + name_of(trained.rounds),
                         .config = config,
                         .defaults = {},
                         .fixed = settings(trained.rounds)});
  check_settings(options, trainings);
  Chart chart{.title = "Duplication task: accuracy of the second half",
              .x = {"hash rounds at evaluation", Scale::log2},
              .y = {"accuracy, %"},
              .series = {}};
  std::vector<Report> rows;
  std::vector<CsvRow> csv = {
      {"trained", "evaluated", "accuracy_percent", "paper_percent", "steps", "seconds", "seed"}};
  for (size_t t = 0; t < kTrained.size(); ++t) {
    const TrainedModel& trained = kTrained[t];
    const FinishedRun model = train_run(options, trainings[t]);
    Report row;
    row.add("trained", name_of(trained.rounds));
    Series series{.name = "trained " + name_of(trained.rounds), .points = {}};
    for (size_t i = 0; i < kEvaluated.size(); ++i) {
      const int64_t rounds = kEvaluated[i];
      const double accuracy = 100 * evaluate_run(options, model, settings(rounds)).accuracy;
      row.add(name_of(rounds), accuracy).add("paper_" + name_of(rounds), trained.paper[i]);
      if (rounds != kFull) series.points.emplace_back(rounds, accuracy);
      csv.push_back({name_of(trained.rounds), name_of(rounds), csv_number(accuracy),
                     csv_number(trained.paper[i]), std::to_string(model.steps), csv_number(model.seconds),
                     std::to_string(model.config.run.seed)});
    }
    rows.push_back(
        row.add("steps", model.steps).add("seconds", model.seconds).add("seed", model.config.run.seed));
    chart.series.push_back(series);
  }
  write_csv(options.out / "table2.csv", csv);
  write_chart(options.out / "table2", chart);
  return Report().add("accuracy_percent", rows);
}

}  // namespace

Reproduction reformer_table2_reproduction() {
  return {.name = "reformer-table2",
          .summary = "Reformer, table 2: duplication task, trained and evaluated with different hash rounds",
          .run = reproduce_reformer_table2,
          .config_keys = training_keys(),
          .own_keys = {"model.attention", "attention.rounds", "data.dataset"}};
}

}  // namespace tapeformer
