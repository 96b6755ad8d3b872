#include "train/reproduce/runner.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/stopwatch.h"
#include "core/system/log.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"
#include "train/reproduce/commands.h"
#include "train/reproduce/provenance.h"
#include "train/reproduce/render.h"
#include "train/reproduce/store.h"
#include "train/reproduce/table_json.h"

namespace tapeformer {
namespace {

struct PlannedTrial {
  const Row* row;
  int64_t seed;
  bool trained = true;  // false if the training run of the trial has not finished or has failed
};

// Returns the value of the entry "training" for ResultStore::put(). `output` is the JSON output of a training
// command that has finished.
Json make_training_json(const Json& output, int64_t threads) {
  Json training = collect_provenance();
  training["threads"] = threads;
  training["steps"] = output.value("step", int64_t{0});
  training["seconds"] = output.value("seconds", 0.0);
  return training;
}

Json to_json(const MeasurementResults& measured) {
  Json json = measured.provenance.is_null() ? collect_provenance() : measured.provenance;
  json["values"] = Json::object();
  for (const auto& [name, value] : measured.values) json["values"][name] = value;
  for (const auto& [name, text] : measured.texts) json["texts"][name] = text;
  json["curves"] = Json::array();
  for (const Curve& curve : measured.curves)
    json["curves"].push_back({{"figure", curve.figure_name}, {"name", curve.name}, {"points", curve.points}});
  if (!measured.pictures.empty()) json["pictures"] = measured.pictures;
  return json;
}

class Runner {
 public:
  Runner(const Reproduction& reproduction, const ReproductionOptions& options)
      : reproduction_(reproduction),
        options_(options),
        table_(reproduction.make_table(options)),
        rows_(select_rows(table_, options)),
        store_(reproduction, options, init_process_group()) {
    int64_t number = 0;
    for (const Row& row : rows_)
      for (const int64_t seed : options.seeds)
        if (number++ % processes_.size() == processes_.rank()) trials_.push_back({&row, seed});
  }

  TableResult run() {
    const StopSignalScope signals;
    if (table_.needs_training) train(signals);
    for (const PlannedTrial& trial : trials_) {
      if (result_.stop_signal = signals.last_signal(); result_.stop_signal) break;
      if (trial.trained) measure(trial, signals);
      write();
    }
    if (!result_.stop_signal) gather_failures();
    write();
    if (processes_.is_first()) write_table_files(result_.table, options_.output_folder);
    return result_;
  }

 private:
  void train(const StopSignalScope& signals);
  void measure(const PlannedTrial& trial, const StopSignalScope& signals);
  void gather_failures();
  void write();

  bool done(const PlannedTrial& trial, const std::string& entry) const {
    const Json known = store_.get(*trial.row, trial.seed);
    return known.contains(entry) && !known[entry].contains("error");
  }
  // Stores the results of a finished training run. `output` is the JSON output of the training command.
  void put_training(const PlannedTrial& trial, const Json& output, int64_t threads) {
    const Json training = make_training_json(output, threads);
    store_.put(*trial.row, trial.seed, kTrainingEntry, training);
    if (output.value("split", "") != "test") return;
    Json evaluation = training;
    evaluation["output"] = output;
    store_.put(*trial.row, trial.seed, kTestEvaluationEntry, std::move(evaluation));
  }
  Json find_test_evaluation(const PlannedTrial& trial, const std::string& run_dir) const {
    const Json evaluation = store_.get(*trial.row, trial.seed).value(kTestEvaluationEntry, Json());
    return !evaluation.is_null() && evaluation["output"].value("run_dir", "") == run_dir ? evaluation
                                                                                         : Json();
  }
  void fail(const PlannedTrial& trial, const std::string& entry, const std::string& problem, int status) {
    Json json = collect_provenance();
    json["error"] = problem;
    store_.put(*trial.row, trial.seed, entry, std::move(json));
    result_.failures.push_back(
        concat_text(trial.row->name, ", seed ", trial.seed, ", ", entry, ": ", problem));
    log_warning(result_.failures.back());
    add_failure_status(status);
  }
  // Records the exit status of a failed command in result_.failure_status. If an earlier failure has a
  // different status, records kFailureExitStatus instead. Ignores the status 0, which means that no command
  // has failed.
  void add_failure_status(int status) {
    if (status == 0) return;
    result_.failure_status =
        result_.failure_status == 0 || result_.failure_status == status ? status : kFailureExitStatus;
  }

  const Reproduction& reproduction_;
  const ReproductionOptions& options_;
  Communicator& processes_ = *init_process_group().communicator;
  Table table_;
  std::vector<Row> rows_;
  ResultStore store_;
  std::vector<PlannedTrial> trials_;
  TableResult result_;
};

void Runner::train(const StopSignalScope& signals) {
  std::vector<PlannedTrial*> trained;
  for (PlannedTrial& trial : trials_)
    if (trial.row->is_trained && !done(trial, kTrainingEntry)) trained.push_back(&trial);
  if (trained.empty()) return;
  const int64_t parallel = std::min<int64_t>(std::ssize(trained), options_.max_parallel_jobs);
  CommandContext context = store_.make_command_context();
  context.threads = std::max<int64_t>(context.threads / parallel, 1);
  std::vector<Job> jobs;
  for (PlannedTrial* const trial : trained) {
    trial->trained = false;
    jobs.push_back(
        make_training_job(options_, context, make_trial(options_, context, *trial->row, trial->seed)));
  }
  run_jobs(
      jobs, parallel, options_.quiet, [&signals] { return signals.last_signal(); },
      [&](size_t i, const JobResult& ended) {
        PlannedTrial& trial = *trained[i];
        trial.trained = ended.exit_status == 0;
        if (trial.trained)
          put_training(trial, read_job_output(jobs[i]), context.threads);
        else if (signals.last_signal() == 0)
          fail(trial, kTrainingEntry, ended.error, ended.exit_status);
      });
  result_.stop_signal = signals.last_signal();
}

void Runner::measure(const PlannedTrial& trial, const StopSignalScope& signals) {
  const CommandContext context = store_.make_command_context();
  Trial measured = make_trial(options_, context, *trial.row, trial.seed);
  measured.test_evaluation = find_test_evaluation(trial, measured.run_dir);
  for (const Measurement& measurement : table_.measurements) {
    if (!applies_to_row(measurement, *trial.row) || done(trial, measurement.name)) continue;
    if (measurement.measures_first_seed_only && trial.seed != options_.seeds.front()) continue;
    try {
      const Stopwatch watch(kCpu);
      Json json = to_json(run_measurement(measurement, options_, context, measured, signals));
      json["seconds"] = watch.measure_elapsed_seconds();
      store_.put(*trial.row, trial.seed, measurement.name, std::move(json));
    } catch (const StoppedError&) {
      result_.stop_signal = signals.last_signal();
      return;
    } catch (const CommandError& error) {
      fail(trial, measurement.name, error.what(), error.exit_status());
    }
  }
}

// Replaces result_.failures with the failures of all processes, and updates result_.failure_status. All
// processes must call this function.
void Runner::gather_failures() {
  processes_.barrier();
  const Json own = {{"status", result_.failure_status}, {"failures", result_.failures}};
  result_.failures.clear();
  for (const std::string& text :
       all_gather_texts(processes_, own.dump(-1, ' ', false, Json::error_handler_t::replace))) {
    const Json other = Json::parse(text);
    for (const Json& failure : other["failures"]) result_.failures.push_back(failure.get<std::string>());
    add_failure_status(other["status"].get<int>());
  }
}

void Runner::write() {
  if (!processes_.is_first()) return;
  result_.table = make_table_json(reproduction_, table_, options_, store_);
  replace_file((options_.output_folder / "table.json").string(), result_.table.dump(1) + "\n");
}

}  // namespace

TableResult run_reproduction(const Reproduction& reproduction, const ReproductionOptions& options) {
  return Runner(reproduction, options).run();
}

std::vector<Row> select_rows(const Table& table, const ReproductionOptions& options) {
  std::vector<std::string> names;
  for (const Row& row : table.rows) names.push_back(row.name);
  for (const std::string& name : options.row_names)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError("--rows: " + describe_unknown_word("row", name, names));
  std::vector<Row> rows;
  for (const Row& row : table.rows)
    if (options.row_names.empty() ||
        std::find(options.row_names.begin(), options.row_names.end(), row.name) != options.row_names.end())
      rows.push_back(row);
  check_settings(options, rows);
  return rows;
}

}  // namespace tapeformer
