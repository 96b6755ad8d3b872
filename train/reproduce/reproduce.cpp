#include "train/reproduce/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "core/system/files.h"
#include "core/system/log.h"
#include "train/build.h"
#include "train/inference/run.h"
#include "train/loop/trainer.h"

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

FinishedRun train_run(const ReproductionOptions& options, const Training& training) {
  FinishedRun run;
  run.training = training;
  run.path = (options.out / training.name).string();
  run.config = config_of(options, training);
  log_info("training ", training.name, " in ", run.path);
  Trainer trainer(run.config, {.run_dir = run.path,
                               .data_dir = options.data.data_dir,
                               .resume = true,
                               .quiet = options.quiet,
                               .allow_commands = options.data.allow_commands,
                               .processes = options.processes});
  const TrainResult result = trainer.run();
  options.processes.communicator->barrier();  // process 0 has written the run directory
  if (result.stop_signal) throw StoppedBySignal{};
  run.steps = result.step;
  run.seconds = result.seconds;
  return run;
}

Evaluation evaluate_run(const ReproductionOptions& options, const FinishedRun& run,
                        const std::vector<std::string>& settings) {
  FoundRun found = find_run({.path = run.path, .sets = {}, .device = options.device});
  found.config = config_of(options, run.training, settings);
  const LoadedRun loaded = load_run(found);
  const auto test = make_split(loaded.config, "test", {.data_dir = options.data.data_dir});
  const TrainConfig& train = loaded.config.train;
  const int64_t batch = train.eval_batch_size > 0 ? train.eval_batch_size : loaded.config.data.batch_size;
  return until_stopped(options, [&](const StopCheck& stop) {
    return evaluate(*loaded.model, *test, batch, 0, options.seed(0), stop, *options.processes.communicator);
  });
}

void write_csv(const std::filesystem::path& path, const std::vector<CsvRow>& rows) {
  if (process_rank() != 0) return;
  std::string text;
  for (const CsvRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + row[i];
    text += "\n";
  }
  replace_file(path.string(), text);
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "";
}

}  // namespace tapeformer
