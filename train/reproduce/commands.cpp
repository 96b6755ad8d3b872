#include "train/reproduce/commands.h"

#include <algorithm>

#include "core/errors.h"
#include "core/system/files.h"

namespace tapeformer {
namespace {

std::string replaced(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

void add_common_options(const ReproductionOptions& options, const CommandContext& context, Words& words) {
  words.insert(words.end(), {"--json", "--threads", std::to_string(context.threads)});
  if (std::find(words.begin(), words.end(), "--device") == words.end())
    words.insert(words.end(), {"--device", context.device});
  if (!options.data.data_dir.empty()) words.insert(words.end(), {"--data-dir", options.data.data_dir});
  const bool reads_corpora = words.front() == "train" || words.front() == "eval";
  if (options.data.allow_commands && reads_corpora) words.emplace_back("--allow-commands");
}

std::filesystem::path config_file(const CommandContext& context, const Trial& trial) {
  return context.logs / (run_name(trial.row, trial.config.run.seed) + ".toml");
}

Words words_of(const Words& command, const ReproductionOptions& options, const CommandContext& context,
               const Trial& trial) {
  const std::pair<const char*, std::string> names[] = {
      {"{run}", trial.run_dir},
      {"{config}", config_file(context, trial).string()},
      {"{limit}", std::to_string(trial.config.data.eval_limit)},
      {"{file}", (context.out / run_name(trial.row, trial.config.run.seed)).string()}};
  Words words = command;
  for (std::string& word : words)
    for (const auto& [name, value] : names) word = replaced(word, name, value);
  add_common_options(options, context, words);
  return words;
}

}  // namespace

std::string run_name(const Row& row, int64_t seed) {
  return concat_text(row.name, "-seed-", seed);
}

Trial make_trial(const ReproductionOptions& options, const CommandContext& context, const Row& row,
                 int64_t seed) {
  return {row, config_of(options, row, seed), (context.runs / run_name(row, seed)).string()};
}

Job training_job(const ReproductionOptions& options, const CommandContext& context, const Trial& trial,
                 bool dry_run) {
  const std::string name = run_name(trial.row, trial.config.run.seed);
  replace_file(config_file(context, trial).string(), to_toml(trial.config));
  Job job{.name = name,
          .words = {"train", config_file(context, trial).string(), "--run-dir", trial.run_dir},
          .out = context.logs / (name + ".out"),
          .log = context.logs / (name + ".log")};
  job.words.emplace_back(dry_run ? "--dry-run" : "--resume");
  add_common_options(options, context, job.words);
  return job;
}

MeasurementResults run_measurement(const Measurement& measurement, const ReproductionOptions& options,
                                   const CommandContext& context, const Trial& trial,
                                   const StopSignals& signals) {
  replace_file(config_file(context, trial).string(), to_toml(trial.config));
  const std::string name = run_name(trial.row, trial.config.run.seed) + "." + measurement.name;
  const std::vector<Words> commands =
      measurement.trial_commands ? measurement.trial_commands(trial) : measurement.commands;
  std::vector<Json> outputs;
  for (size_t i = 0; i < commands.size(); ++i) {
    const Job job{.name = name,
                  .words = words_of(commands[i], options, context, trial),
                  .out = context.logs / concat_text(name, ".", i, ".out"),
                  .log = context.logs / concat_text(name, ".", i, ".log")};
    JobResult result;
    run_jobs(
        {job}, 1, options.quiet, [&signals] { return signals.requested(); },
        [&](size_t, const JobResult& ended) { result = ended; });
    if (signals.requested() != 0) throw Stopped();
    if (result.status != 0) throw CommandFailed(result.problem, result.status);
    outputs.push_back(output_of(job));
  }
  return measurement.read(outputs, trial);
}

Json output_of(const Job& job) {
  Json output = Json::parse(read_file(job.out.string()), nullptr, false);
  if (!output.is_object())
    throw CommandFailed(job.out.string() + ": expected a JSON object, the output of a command", kFailed);
  return output;
}

}  // namespace tapeformer
