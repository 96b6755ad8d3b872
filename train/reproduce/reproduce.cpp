#include "train/reproduce/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "core/files.h"
#include "core/log.h"
#include "train/build.h"
#include "train/run.h"
#include "train/trainer.h"

namespace tapeformer {

const std::vector<Reproduction>& reproductions() {
  static const auto* const list = new std::vector<Reproduction>{
      attention_scaling_reproduction(), copy_convergence_reproduction(), reformer_table2_reproduction(),
      speech_scaling_reproduction(), speech_table_reproduction()};
  return *list;
}

const Reproduction& reproduction(const std::string& name) {
  std::vector<std::string> names;
  for (const Reproduction& known : reproductions()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  throw ConfigError(unknown_text("table or figure", name, names));
}

FinishedRun train_run(const ReproductionOptions& options, const std::string& name, const std::string& config,
                      const RunSettings& settings) {
  std::vector<std::string> all = settings.defaults;
  for (const auto* more : {&options.common.sets, &settings.fixed})
    all.insert(all.end(), more->begin(), more->end());
  FinishedRun run;
  run.path = (options.out / name).string();
  run.config = load_config((options.configs / config).string(), all, attention_catalogue());
  run.config.run.name = name;
  if (options.common.seed) run.config.run.seed = *options.common.seed;
  if (options.common.threads > 0) run.config.run.threads = options.common.threads;
  log_info("training ", name, " in ", run.path);
  Trainer trainer(run.config, {.run_dir = run.path,
                               .data_dir = options.common.data_dir,
                               .resume = true,
                               .quiet = options.common.quiet});
  const TrainResult result = trainer.run();
  if (result.stop_signal) throw StoppedBySignal{};
  run.steps = result.step;
  run.seconds = result.seconds;
  return run;
}

void refuse_settings(const ReproductionOptions& options, const std::vector<std::string>& keys) {
  for (const std::string& set : options.common.sets)
    for (const std::string& key : keys)
      if (set.starts_with(key + "=") || set.starts_with(key + " "))
        throw ConfigError("--set " + set + ": the reproduction sets " + key + " itself");
}

Evaluation evaluate_run(const ReproductionOptions& options, const FinishedRun& run,
                        const std::vector<std::string>& sets) {
  std::vector<std::string> all = options.common.sets;
  all.insert(all.end(), sets.begin(), sets.end());
  const LoadedRun loaded = load_run({.path = run.path, .sets = all});
  const auto test = make_split(loaded.config, "test", options.common.data_dir);
  const TrainConfig& train = loaded.config.train;
  const int64_t batch = train.eval_batch_size > 0 ? train.eval_batch_size : loaded.config.data.batch_size;
  return until_stopped(
      [&](const StopCheck& stop) { return evaluate(*loaded.model, *test, batch, 0, 0, stop); });
}

void write_csv(const std::filesystem::path& path, const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + row[i];
    text += "\n";
  }
  replace_file(path.string(), text);
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "";
}

}  // namespace tapeformer
