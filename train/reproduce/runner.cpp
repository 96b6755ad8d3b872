#include "train/reproduce/runner.h"

#include <algorithm>
#include <deque>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"
#include "train/reproduce/measurement_kind.h"
#include "train/reproduce/render.h"
#include "train/reproduce/store.h"
#include "train/reproduce/table_json.h"
#include "train/reproduce/table_settings.h"

namespace tapeformer {
namespace {

struct PlannedTrial {
  const Row* row;
  int64_t seed;
  bool trained = true;  // false if the training run of the trial has not finished or has failed
};

// Returns the entry "training" for ResultStore::put(). `output` is the JSON output of a training command that
// has finished.
Json make_training_entry(const Json& output, int64_t threads) {
  Json training = collect_provenance();
  training["threads"] = threads;
  training["steps"] = output.value("step", int64_t{0});
  training["seconds"] = output.value("seconds", 0.0);
  training["output"] = output;
  return training;
}

class Runner {
 public:
  Runner(const Table& table, const ReproductionOptions& options)
      : options_(options),
        table_(table),
        rows_(select_rows(table, options)),
        store_(table, options, init_process_group()) {
    int64_t number = 0;
    for (const Row& row : rows_) {
      const bool has_pretraining = !row.pretraining.empty();
      if (has_pretraining) pretraining_rows_.push_back(make_pretraining_row(row));
      for (const int64_t seed : options.seeds) {
        if (number++ % processes_.size() != processes_.rank()) continue;
        trials_.push_back({&row, seed});
        if (has_pretraining) pretrainings_.push_back({&pretraining_rows_.back(), seed});
      }
    }
  }

  TableResult run() {
    const StopSignalScope signals;
    train(pretrainings_, signals);
    if (!result_.stop_signal) train(trials_, signals);
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
  void train(std::vector<PlannedTrial>& trials, const StopSignalScope& signals);
  void measure(const PlannedTrial& trial, const StopSignalScope& signals);
  void gather_failures();
  void write();

  bool done(const PlannedTrial& trial, const std::string& entry) const {
    const Json known = store_.get(*trial.row, trial.seed);
    return known.contains(entry) && !known[entry].contains("error");
  }
  CommandContext make_context(const StopSignalScope& signals, int64_t parallel) const {
    return {.options = options_,
            .output_folder = options_.output_folder,
            .log_folder = options_.output_folder / "logs",
            .runs_folder = store_.runs_folder(),
            .threads = std::max<int64_t>(get_thread_count() / parallel, 1),
            .device = store_.device(),
            .signals = signals};
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

  const ReproductionOptions& options_;
  Communicator& processes_ = *init_process_group().communicator;
  const Table& table_;
  std::vector<Row> rows_;
  std::deque<Row> pretraining_rows_;
  ResultStore store_;
  std::vector<PlannedTrial> trials_, pretrainings_;
  TableResult result_;
};

void Runner::train(std::vector<PlannedTrial>& trials, const StopSignalScope& signals) {
  std::vector<PlannedTrial*> trained;
  for (PlannedTrial& trial : trials)
    if (trial.row->is_trained && !done(trial, kTrainingEntry)) trained.push_back(&trial);
  if (trained.empty()) return;
  const int64_t parallel = std::min<int64_t>(std::ssize(trained), options_.max_parallel_jobs);
  const CommandContext context = make_context(signals, parallel);
  std::vector<Job> jobs;
  for (PlannedTrial* const trial : trained) {
    trial->trained = false;
    jobs.push_back(context.make_training_job(context.make_trial(*trial->row, trial->seed)));
  }
  run_jobs(
      jobs, parallel, options_.quiet, [&signals] { return signals.last_signal(); },
      [&](size_t i, const JobResult& ended) {
        PlannedTrial& trial = *trained[i];
        trial.trained = ended.exit_status == 0;
        if (trial.trained)
          store_.put(*trial.row, trial.seed, kTrainingEntry,
                     make_training_entry(read_job_output(jobs[i]), context.threads));
        else if (signals.last_signal() == 0)
          fail(trial, kTrainingEntry, ended.error, ended.exit_status);
      });
  result_.stop_signal = signals.last_signal();
}

void Runner::measure(const PlannedTrial& trial, const StopSignalScope& signals) {
  const CommandContext context = make_context(signals, 1);
  Trial measured = context.make_trial(*trial.row, trial.seed);
  measured.training = store_.get(*trial.row, trial.seed).value(kTrainingEntry, Json());
  for (const Measurement& measurement : table_.measurements) {
    if (!measurement.applies_to(*trial.row) || done(trial, measurement.name)) continue;
    if (!measurement.kind->every_seed && trial.seed != options_.seeds.front()) continue;
    try {
      store_.put(*trial.row, trial.seed, measurement.name, run_measurement(measurement, measured, context));
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
  result_.table = make_table_json(table_, options_, store_);
  replace_file((options_.output_folder / "table.json").string(), result_.table.dump(1) + "\n");
}

}  // namespace

TableResult run_reproduction(const Table& table, const ReproductionOptions& options) {
  return Runner(table, options).run();
}

}  // namespace tapeformer
