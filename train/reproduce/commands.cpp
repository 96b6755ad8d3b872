#include "train/reproduce/commands.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/files.h"

namespace tapeformer {
namespace {

std::string replace_placeholder(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

void add_common_options(const ReproductionOptions& options, const CommandContext& context, Words& words) {
  words.insert(words.end(), {"--json", "--threads", std::to_string(context.threads)});
  if (std::find(words.begin(), words.end(), "--device") == words.end())
    words.insert(words.end(), {"--device", context.device});
  if (!options.data_access.data_dir.empty())
    words.insert(words.end(), {"--data-dir", options.data_access.data_dir});
  const bool reads_corpora = words.front() == "train" || words.front() == "eval";
  if (options.data_access.allow_commands && reads_corpora) words.emplace_back("--allow-commands");
}

std::filesystem::path make_config_path(const CommandContext& context, const Trial& trial) {
  return context.log_folder / (make_run_name(trial.row, trial.config.run.seed) + ".toml");
}

Words make_arguments(const Words& command, const ReproductionOptions& options, const CommandContext& context,
                     const Trial& trial) {
  const std::pair<const char*, std::string> names[] = {
      {"{run}", trial.run_dir},
      {"{config}", make_config_path(context, trial).string()},
      {"{limit}", std::to_string(trial.config.data.eval_limit)},
      {"{file}", (context.output_folder / make_run_name(trial.row, trial.config.run.seed)).string()}};
  Words words = command;
  for (std::string& word : words)
    for (const auto& [name, value] : names) word = replace_placeholder(word, name, value);
  add_common_options(options, context, words);
  return words;
}

std::string make_start_message(const std::string& name, const std::filesystem::path& log) {
  return concat_text("running ", name, "; its log is ", log.string());
}

}  // namespace

std::string make_run_name(const Row& row, int64_t seed) {
  return concat_text(row.name, "-seed-", seed);
}

Trial make_trial(const ReproductionOptions& options, const CommandContext& context, const Row& row,
                 int64_t seed) {
  return {row, make_row_config(options, row, seed),
          (context.runs_folder / make_run_name(row, seed)).string()};
}

Job make_training_job(const ReproductionOptions& options, const CommandContext& context, const Trial& trial,
                      bool dry_run) {
  const std::string name = make_run_name(trial.row, trial.config.run.seed);
  replace_file(make_config_path(context, trial).string(), to_toml(trial.config));
  Job job{.name = name,
          .arguments = {"train", make_config_path(context, trial).string(), "--run-dir", trial.run_dir},
          .output_path = context.log_folder / (name + ".out"),
          .log_path = context.log_folder / (name + ".log")};
  job.start_message = dry_run ? "estimating " + trial.row.name : make_start_message(name, job.log_path);
  job.arguments.emplace_back(dry_run ? "--dry-run" : "--resume");
  add_common_options(options, context, job.arguments);
  return job;
}

MeasurementResults run_measurement(const Measurement& measurement, const ReproductionOptions& options,
                                   const CommandContext& context, const Trial& trial,
                                   const StopSignalScope& signals) {
  replace_file(make_config_path(context, trial).string(), to_toml(trial.config));
  const std::string name = make_run_name(trial.row, trial.config.run.seed) + "." + measurement.name;
  const std::vector<Words> commands =
      measurement.make_trial_commands ? measurement.make_trial_commands(trial) : measurement.commands;
  std::vector<Json> outputs;
  for (size_t i = 0; i < commands.size(); ++i) {
    const std::filesystem::path log = context.log_folder / concat_text(name, ".", i, ".log");
    const Job job{.name = name,
                  .arguments = make_arguments(commands[i], options, context, trial),
                  .output_path = context.log_folder / concat_text(name, ".", i, ".out"),
                  .log_path = log,
                  .start_message = make_start_message(name, log)};
    JobResult result;
    run_jobs(
        {job}, 1, options.quiet, [&signals] { return signals.last_signal(); },
        [&](size_t, const JobResult& ended) { result = ended; });
    if (signals.last_signal() != 0) throw StoppedError();
    if (result.exit_status != 0) throw CommandError(result.error, result.exit_status);
    outputs.push_back(read_job_output(job));
  }
  return measurement.read_results(outputs, trial);
}

Json read_job_output(const Job& job) {
  Json output = Json::parse(read_file(job.output_path.string()), nullptr, false);
  if (!output.is_object())
    throw CommandError(job.output_path.string() + ": expected a JSON object, the output of a command",
                       kFailureExitStatus);
  return output;
}

}  // namespace tapeformer
