// The command "tapeformer train": trains a model from a config file, or continues a run.
#include <filesystem>

#include "core/system/log.h"
#include "train/cli/commands.h"
#include "train/cli/configs_folder.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"
#include "train/loop/progress.h"
#include "train/loop/trainer.h"

namespace tapeformer {
namespace {

// Loads a config. The common options of the command line override keys of the config.
Config load_overridden_config(const std::string& path, const CommonOptions& common) {
  const ConfigOverrides overrides = make_config_overrides(common);
  Config config = load_config(find_config(path), overrides.config_settings,
                              {.device = common.is_device_given ? common.device : ""});
  overrides.apply(config);
  return config;
}

int dry_run(const Config& config, const TrainerOptions& options, const CommonOptions& common) {
  const DryRunResult r = Trainer(config, options).dry_run();
  Report report;
  report.add("parameters", r.parameter_count)
      .add("training_examples", r.training_example_count)
      .add("evaluation_examples", r.evaluation_example_count)
      .add("steps", r.total_steps)
      .add("loss_nats", r.loss ? Report::Value(*r.loss) : std::monostate{})
      .add("memory_bytes", r.memory_bytes)
      .add("seconds_per_step", r.seconds_per_step)
      .add("estimated_seconds", r.estimated_seconds);
  print_report(report, common);
  if (!common.json)
    print_text("about " + format_duration(r.estimated_seconds) + " of training, without evaluations\n");
  return 0;
}

Report report_of(const TrainResult& result, const std::string& run_dir) {
  Report report;
  report.add("run_dir", run_dir)
      .add("step", result.step)
      .add("steps", result.total_steps)
      .add("seconds", result.training_seconds);
  if (result.evaluation) {
    const TaskEvaluation& e = *result.evaluation;
    report.add("split", e.split).add("examples", e.example_count);
    add_fields(e.results, report);
  }
  if (result.last_epoch_seconds > 0) report.add("seconds_per_epoch", result.last_epoch_seconds);
  return report;
}

int train(Trainer& trainer, const CommandLine& line) {
  const TrainResult result = trainer.run();
  print_report(report_of(result, trainer.run_dir().string()), line.common_options);
  if (result.is_time_up)
    log_warning("the time limit ended the run before its last step. To continue: tapeformer train ",
                line.positionals.front(), " --run-dir ", trainer.run_dir().string(),
                " --resume --set train.time_limit_minutes=0");
  if (result.stop_signal)
    log_info("a signal stopped the run after a checkpoint; to continue, repeat the command with --resume");
  return result.stop_signal ? kSignalStopExitStatus : 0;
}

}  // namespace

CommandSpec make_train_spec(const Arguments& /*words*/) {
  return {
      .summary =
          "Trains a model and writes the resolved config, metrics and checkpoints to a run directory. On "
          "SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2, a training writes a checkpoint and ends with exit "
          "status 75.",
      .positionals = {{.name = "CONFIG",
                       .help = "a TOML file, or the name of an installed config, such as quickstart",
                       .suggestions = list_config_names()}},
      .options = {{.name = "run-dir",
                   .default_value = std::string(),
                   .help = "run directory",
                   .default_text = "runs/NAME"},
                  {.name = "resume",
                   .default_value = false,
                   .help = "continue from the last checkpoint of the run directory"},
                  {.name = "dry-run",
                   .default_value = false,
                   .help = "check config and data and run two steps, without writing files"},
                  make_allow_commands_option()},
      .details =
          "\"tapeformer train --help KEY\" prints the keys whose names contain KEY, or the table KEY.\n\n" +
          format_config_help(),
      .uses_config = true,
      .default_device = "run.device",
      .default_seed = "run.seed",
      .make_topic_help = [](const std::string& word) { return format_config_help(word); }};
}

int run_train(const CommandLine& line) {
  const ProcessGroup& processes = init_process_group();
  const Config config = load_overridden_config(line.positionals[0], line.common_options);
  const auto& run_dir = line.options.get<std::string>("run-dir");
  try {
    const TrainerOptions options{.run_dir = run_dir.empty() ? std::filesystem::path("runs") / config.run.name
                                                            : std::filesystem::path(run_dir),
                                 .data_dir = line.common_options.data_dir,
                                 .resume = line.options.get<bool>("resume"),
                                 .quiet = line.common_options.quiet,
                                 .allow_commands = line.options.get<bool>("allow-commands"),
                                 .processes = processes};
    if (line.options.get<bool>("dry-run")) return dry_run(config, options, line.common_options);
    Trainer trainer(config, options);
    return train(trainer, line);
  } catch (const RunDirectoryError& error) {
    throw_with_option_advice(error, "--run-dir");
  }
}

}  // namespace tapeformer
