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

void add_common_options(const ReproductionOptions& options, const CommandPlace& place, Words& words) {
  words.insert(words.end(), {"--json", "--threads", std::to_string(place.threads)});
  if (std::find(words.begin(), words.end(), "--device") == words.end())
    words.insert(words.end(), {"--device", options.device_name()});
  if (!options.data.data_dir.empty()) words.insert(words.end(), {"--data-dir", options.data.data_dir});
  const bool reads_corpora = words.front() == "train" || words.front() == "eval";
  if (options.data.allow_commands && reads_corpora) words.emplace_back("--allow-commands");
}

std::filesystem::path config_file(const CommandPlace& place, const Case& one) {
  return place.logs / (run_name(one.row, one.config.run.seed) + ".toml");
}

Words words_of(const Words& command, const ReproductionOptions& options, const CommandPlace& place,
               const Case& one) {
  const std::pair<const char*, std::string> names[] = {
      {"{run}", one.run_dir},
      {"{config}", config_file(place, one).string()},
      {"{limit}", std::to_string(one.config.data.eval_limit)},
      {"{file}", (place.out / run_name(one.row, one.config.run.seed)).string()}};
  Words words = command;
  for (std::string& word : words)
    for (const auto& [name, value] : names) word = replaced(word, name, value);
  add_common_options(options, place, words);
  return words;
}

}  // namespace

std::string run_name(const Row& row, int64_t seed) {
  return concat_text(row.name, "-seed-", seed);
}

Case case_of(const ReproductionOptions& options, const CommandPlace& place, const Row& row, int64_t seed) {
  return {row, config_of(options, row, seed), (place.runs / run_name(row, seed)).string()};
}

Job training_job(const ReproductionOptions& options, const CommandPlace& place, const Case& one,
                 bool dry_run) {
  const std::string name = run_name(one.row, one.config.run.seed);
  replace_file(config_file(place, one).string(), to_toml(one.config));
  Job job{.name = name,
          .words = {"train", config_file(place, one).string(), "--run-dir", one.run_dir},
          .out = place.logs / (name + ".out"),
          .log = place.logs / (name + ".log")};
  job.words.emplace_back(dry_run ? "--dry-run" : "--resume");
  add_common_options(options, place, job.words);
  return job;
}

Measured run_measurement(const Measurement& measurement, const ReproductionOptions& options,
                         const CommandPlace& place, const Case& one, const StopSignals& signals) {
  replace_file(config_file(place, one).string(), to_toml(one.config));
  const std::string name = run_name(one.row, one.config.run.seed) + "." + measurement.name;
  std::vector<Json> outputs;
  for (size_t i = 0; i < measurement.commands.size(); ++i) {
    const Job job{.name = name,
                  .words = words_of(measurement.commands[i], options, place, one),
                  .out = place.logs / concat_text(name, ".", i, ".out"),
                  .log = place.logs / concat_text(name, ".", i, ".log")};
    JobResult result;
    run_jobs(
        {job}, 1, options.quiet, [&signals] { return signals.requested(); },
        [&](size_t, const JobResult& ended) { result = ended; });
    if (signals.requested() != 0) throw Stopped();
    if (result.status != 0) throw CommandFailed(result.problem, result.status);
    outputs.push_back(output_of(job));
  }
  return measurement.read(outputs, one);
}

Json output_of(const Job& job) {
  Json output = Json::parse(read_file(job.out.string()), nullptr, false);
  if (!output.is_object())
    throw CommandFailed(job.out.string() + ": expected a JSON object, the output of a command", kFailed);
  return output;
}

}  // namespace tapeformer
