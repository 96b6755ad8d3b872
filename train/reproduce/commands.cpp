#include "train/reproduce/commands.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/files.h"

namespace tapeformer {
namespace {

constexpr char kPretraining[] = "-pretraining";  // end of the name of a pretraining

std::string make_start_message(const std::string& name, const std::filesystem::path& log) {
  return concat_text("running ", name, "; its log is ", log.string());
}

}  // namespace

std::string make_run_name(const std::string& row, int64_t seed) {
  return concat_text(row, "-seed-", seed);
}

Row make_pretraining_row(Row row) {
  row.name += kPretraining;
  row.fixed.insert(row.fixed.end(), row.pretraining.begin(), row.pretraining.end());
  row.pretraining.clear();
  return row;
}

Config make_row_config(const ReproductionOptions& options, const std::string& config_path, Words settings,
                       const Words& fixed) {
  for (const Words* more : {&options.overrides.config_settings, &fixed})
    settings.insert(settings.end(), more->begin(), more->end());
  return load_config(config_path, settings,
                     {.unused_key_policy = UnusedKeyPolicy::ignore, .device = options.overrides.device});
}

Trial CommandContext::make_trial(const Row& row, int64_t seed) const {
  Words fixed = fill_texts(row.fixed, row.variables);
  if (!row.pretraining.empty()) {
    const auto run = runs_folder / make_run_name(row.name + kPretraining, seed);
    fixed.push_back("model.init=" + Json(run.string()).dump());
  }
  Config config = make_row_config(options, row.config_path, row.settings, fixed);
  config.run.name = row.name;
  options.overrides.apply(config);
  config.run.seed = seed;
  return {row, config, (runs_folder / make_run_name(row.name, seed)).string()};
}

std::string CommandContext::write_config(const Trial& trial) const {
  const std::string path = (log_folder / (trial.name() + ".toml")).string();
  replace_file(path, to_toml(trial.config));
  return path;
}

void CommandContext::add_common_options(Words& words) const {
  words.insert(words.end(), {"--json", "--threads", std::to_string(threads)});
  if (std::find(words.begin(), words.end(), "--device") == words.end())
    words.insert(words.end(), {"--device", device});
  if (!options.data_access.data_dir.empty())
    words.insert(words.end(), {"--data-dir", options.data_access.data_dir});
  const bool reads_corpora = words.front() == "train" || words.front() == "eval";
  if (options.data_access.allow_commands && reads_corpora) words.emplace_back("--allow-commands");
}

Job CommandContext::make_training_job(const Trial& trial, bool dry_run) const {
  const std::string name = trial.name();
  Trial started = trial;
  if (dry_run) started.config.model.init.clear();  // there is no pretraining
  Job job{.name = name,
          .arguments = {"train", write_config(started), "--run-dir", trial.run_dir,
                        dry_run ? "--dry-run" : "--resume"},
          .output_path = log_folder / (name + ".out"),
          .log_path = log_folder / (name + ".log")};
  job.start_message = dry_run ? "estimating " + trial.row.name : make_start_message(name, job.log_path);
  add_common_options(job.arguments);
  return job;
}

Lookup CommandContext::make_variables(const Trial& trial) const {
  return make_lookup({{"run", trial.run_dir},
                      {"config", (log_folder / (trial.name() + ".toml")).string()},
                      {"file", (output_folder / trial.name()).string()}},
                     trial.row.variables);
}

Json CommandContext::run(const Trial& trial, const std::string& name, Words command) const {
  write_config(trial);
  add_common_options(command);
  const std::string log_name = trial.name() + "." + name;
  Job job{.name = log_name,
          .arguments = std::move(command),
          .output_path = log_folder / (log_name + ".out"),
          .log_path = log_folder / (log_name + ".log")};
  job.start_message = make_start_message(log_name, job.log_path);
  JobResult result;
  run_jobs(
      {job}, 1, options.quiet, [this] { return signals.last_signal(); },
      [&](size_t, const JobResult& ended) { result = ended; });
  if (signals.last_signal() != 0) throw StoppedError();
  if (result.exit_status != 0) throw CommandError(result.error, result.exit_status);
  return read_job_output(job);
}

Json read_job_output(const Job& job) {
  Json output = Json::parse(read_file(job.output_path.string()), nullptr, false);
  if (!output.is_object())
    throw CommandError(job.output_path.string() + ": expected a JSON object, the output of a command",
                       kFailureExitStatus);
  return output;
}

}  // namespace tapeformer
