// The command "tapeformer train": trains a model from a config file, or continues a run.
#include <filesystem>

#include "core/cuda/devices.h"
#include "core/system/log.h"
#include "train/bench/device_cost.h"
#include "train/bench/device_model.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"
#include "train/loop/progress.h"
#include "train/loop/trainer.h"

namespace tapeformer {
namespace {

CommandSpec train_spec() {
  return {
      .name = "train",
      .summary =
          "Trains a model and writes the resolved config, metrics and checkpoints to a run directory. On "
          "SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2, a training writes a checkpoint and ends with exit "
          "status 75.",
      .positionals = {{.name = "CONFIG", .help = "a TOML file"}},
      .options = {{.name = "run-dir",
                   .default_value = std::string(),
                   .help = "run directory",
                   .default_text = "runs/NAME"},
                  {.name = "resume",
                   .default_value = false,
                   .help = "continue from the last checkpoint of the run directory"},
                  {.name = "dry-run",
                   .default_value = false,
                   .help = "check config and data and run two steps, without writing files; on an emulated "
                           "device, count the work of the steps and estimate their time on an H200"},
                  make_allow_commands_option()},
      .details =
          "\"tapeformer train --help KEY\" prints the keys whose names contain KEY, or the table KEY.\n\n" +
          format_config_help(make_attention_catalogue()),
      .uses_config = true,
      .default_device = "run.device",
      .default_seed = "run.seed",
      .make_topic_help = [](const std::string& word) {
        return format_config_help(make_attention_catalogue(), word);
      }};
}

// Loads a config. The common options of the command line override keys of the config.
Config load_config(const std::string& path, const CommonOptions& common) {
  const ConfigOverrides overrides = make_config_overrides(common);
  Config config = load_config(path, overrides.config_settings, make_attention_catalogue(),
                              {.device = common.is_device_given ? common.device : ""});
  overrides.apply(config);
  return config;
}

// Returns the device model for the estimated times of a dry run, or null if `device` is not an emulated
// device.
const DeviceModel* find_modelled_device(const std::string& device) {
  if constexpr (kHasCuda)
    if (cuda::is_emulated() && !choose_device(device).device.is_cpu()) return &find_device_model("h200");
  return nullptr;
}

// Makes a dry run on an emulated device. The device counts the work of the steps, but does not compute their
// results. The estimated times are for the device that `model` describes.
DryRunResult run_counted_dry_run(const Config& config, const TrainerOptions& options,
                                 const DeviceModel& model) {
  if constexpr (kHasCuda) {
    const WorkCounter counter(choose_device(config.run.device).device, model.memory_bytes);
    return Trainer(config, options).dry_run([&](const std::function<void()>& step) {
      double seconds = 0;
      for (const cuda::WorkRecord& record : counter.count_work(step).records)
        seconds += estimate_seconds(record, model);
      return seconds;
    });
  }
  return {};
}

int dry_run(const Config& config, const TrainerOptions& options, const CommonOptions& common) {
  const DeviceModel* model = find_modelled_device(config.run.device);
  const DryRunResult r =
      model ? run_counted_dry_run(config, options, *model) : Trainer(config, options).dry_run();
  Report report;
  report.add("parameters", r.parameter_count)
      .add("training_examples", r.training_example_count)
      .add("evaluation_examples", r.evaluation_example_count)
      .add("steps", r.total_steps)
      .add("loss_nats", r.loss ? Report::Value(*r.loss) : std::monostate{})
      .add("memory_bytes", r.memory_bytes)
      .add("seconds_per_step", r.seconds_per_step)
      .add("estimated_seconds", r.estimated_seconds);
  if (model) report.add("device_model", model->name);
  print_report(report, common);
  if (!common.json)
    print_text("about " + format_duration(r.estimated_seconds) + " of training" +
               (model ? " on the device of this model" : "") + ", without evaluations\n");
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
    for (const auto& [name, value] : e.printed_results)
      std::visit([&, &name = name](const auto& v) { report.add(name, v); }, value);
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

int run_train(const Arguments& arguments) {
  const auto line = parse_command(train_spec(), arguments);
  if (!line) return 0;
  const ProcessGroup& processes = init_process_group();
  const Config config = load_config(line->positionals[0], line->common_options);
  const auto& run_dir = line->options.get<std::string>("run-dir");
  try {
    const TrainerOptions options{.run_dir = run_dir.empty() ? std::filesystem::path("runs") / config.run.name
                                                            : std::filesystem::path(run_dir),
                                 .data_dir = line->common_options.data_dir,
                                 .resume = line->options.get<bool>("resume"),
                                 .quiet = line->common_options.quiet,
                                 .allow_commands = line->options.get<bool>("allow-commands"),
                                 .processes = processes};
    if (line->options.get<bool>("dry-run")) return dry_run(config, options, line->common_options);
    Trainer trainer(config, options);
    return train(trainer, *line);
  } catch (const RunDirectoryError& error) {
    throw_with_option_advice(error, "--run-dir");
  }
}

}  // namespace tapeformer
