// Estimates of the time, memory and disk space of a reproduction, for `tapeformer reproduce --dry-run`. For
// each trained row, `train --dry-run` runs a few training steps. The number of commands that the dry run
// executes in parallel is the number of training runs that the reproduction executes in parallel. All files
// of the dry run are temporary.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "core/base/environment.h"
#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/threads/threads.h"
#include "train/reproduce/runner.h"
#include "train/reproduce/table_json.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// A folder in $TMPDIR, or in /tmp if the variable is not set, that exists during the lifetime of the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    const char* const named = get_environment_variable("TMPDIR");
    path_ = fs::path(named ? named : "/tmp") / make_temporary_path(concat_text("tapeformer-", getpid()));
    std::error_code error;
    if (!fs::create_directory(path_, error))
      throw std::runtime_error(concat_text("cannot create the temporary folder ", path_.string(), ": ",
                                           error.message(),
                                           "; set the environment variable TMPDIR to another folder"));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Returns the estimated size in bytes of all checkpoints of a run. Each checkpoint is assumed to contain the
// weights, two moments per weight and, if optimizer.ema > 0, the moving average of the weights, in float32.
int64_t run_bytes(const Config& config, int64_t parameters) {
  constexpr int64_t kBestAndNext = 2;  // the best checkpoint, and the checkpoint that is being written
  const int64_t tensors = 3 + (config.optimizer.ema > 0 ? 1 : 0);
  return parameters * tensors * static_cast<int64_t>(sizeof(float)) * (config.train.keep_last + kBestAndNext);
}

// Returns the estimated time in seconds of the measurements of a row for `seeds` seeds. `step` is the time of
// a training step in seconds. A forward pass is assumed to take a third of the time of a training step.
double estimate_measuring_seconds(const Table& table, const Trial& trial, double step, int64_t seeds) {
  constexpr double kForwardShare = 1.0 / 3;
  const double forward = step * kForwardShare / static_cast<double>(trial.config.data.batch_size);
  double seconds = 0;
  for (const Measurement& measurement : table.measurements)
    if (applies_to_row(measurement, trial.row) && measurement.estimate_seconds)
      seconds += measurement.estimate_seconds(forward, trial) *
                 static_cast<double>(measurement.measures_first_seed_only ? 1 : seeds);
  return seconds;
}

// Estimated costs of a table row. The times and the disk space are sums over all seeds of the reproduction.
struct RowEstimate {
  double training_seconds = 0;
  double measuring_seconds = 0;
  int64_t disk_bytes = 0;
  Report report;  // the row of the printed estimate
};

RowEstimate estimate_row(const Table& table, const Trial& trial, const Json& output, int64_t seeds) {
  const auto parameters = output.value("parameters", int64_t{0});
  RowEstimate estimate;
  estimate.training_seconds = output.value("estimated_seconds", 0.0) * static_cast<double>(seeds);
  estimate.measuring_seconds =
      estimate_measuring_seconds(table, trial, output.value("seconds_per_step", 0.0), seeds);
  estimate.disk_bytes = run_bytes(trial.config, parameters) * seeds;
  estimate.report.add("row", trial.row.name)
      .add("parameters", parameters)
      .add("steps", output.value("steps", int64_t{0}))
      .add("training_seconds", estimate.training_seconds)
      .add("measuring_seconds", estimate.measuring_seconds)
      .add("memory_bytes", output.value("memory_bytes", int64_t{0}))
      .add("disk_bytes", estimate.disk_bytes);
  return estimate;
}

// Returns the trials that the dry run trains: each trained row with the first seed. If there are fewer than
// `parallel` trained rows, adds trials with other seeds, so that `parallel` training runs share the machine,
// as in the reproduction.
std::vector<Trial> list_estimated_trials(const ReproductionOptions& options, const CommandContext& context,
                                         const std::vector<Row>& rows, int64_t parallel) {
  std::vector<Trial> trials;
  for (const int64_t seed : options.seeds)
    for (const Row& row : rows)
      if (row.is_trained && (seed == options.seeds.front() || std::ssize(trials) < parallel))
        trials.push_back(make_trial(options, context, row, seed));
  return trials;
}

// Runs `train --dry-run` for the trials of list_estimated_trials(), at most `parallel` at the same time.
// Returns the estimates of the trained rows. Throws CommandError if a command fails.
std::vector<RowEstimate> estimate_rows(const Table& table, const ReproductionOptions& options,
                                       const std::vector<Row>& rows, int64_t parallel) {
  const StopSignalScope signals;
  const ScratchFolder scratch;
  const CommandContext context{scratch.path(), scratch.path(), scratch.path() / "runs",
                               std::max<int64_t>(get_thread_count() / parallel, 1), options.device_name()};
  const std::vector<Trial> trials = list_estimated_trials(options, context, rows, parallel);
  std::vector<Job> jobs;
  for (const Trial& trial : trials) jobs.push_back(make_training_job(options, context, trial, true));
  std::optional<CommandError> failure;
  run_jobs(
      jobs, parallel, options.quiet, [&] { return failure ? SIGTERM : signals.last_signal(); },
      [&](size_t i, const JobResult& ended) {
        if (ended.exit_status != 0 && !failure)
          failure.emplace(trials[i].row.name + ": " + ended.error, ended.exit_status);
      });
  if (signals.last_signal() != 0) throw StoppedError();
  if (failure) throw *failure;
  std::vector<RowEstimate> estimates;
  for (size_t i = 0; i < jobs.size(); ++i)
    if (trials[i].config.run.seed == options.seeds.front())
      estimates.push_back(
          estimate_row(table, trials[i], read_job_output(jobs[i]), std::ssize(options.seeds)));
  return estimates;
}

}  // namespace

Report estimate_reproduction_costs(const Reproduction& reproduction, const ReproductionOptions& options) {
  const Table table = reproduction.make_table(options);
  const std::vector<Row> rows = select_rows(table, options);
  Report report;
  report.add("title", table.title).add("seeds", options.seeds);
  if (!table.needs_training) {
    std::vector<Report> list;
    for (const Row& row : rows) list.push_back(Report().add("row", row.name));
    return report.add("trainings", int64_t{0})
        .add("estimate",
             "none: the rows train no models, and the time of their measurements is not estimated")
        .add("rows", list);
  }
  const int64_t trained_row_count =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.is_trained; });
  const int64_t training_count = trained_row_count * std::ssize(options.seeds);
  const int64_t parallel =
      std::clamp<int64_t>(options.max_parallel_jobs, 1, std::max<int64_t>(training_count, 1));
  double seconds = 0;
  int64_t disk = 0;
  std::vector<Report> list;
  for (const RowEstimate& estimate : estimate_rows(table, options, rows, parallel)) {
    seconds += estimate.training_seconds / static_cast<double>(parallel) + estimate.measuring_seconds;
    disk += estimate.disk_bytes;
    list.push_back(estimate.report);
  }
  return report.add("trainings", training_count)
      .add("jobs", parallel)
      .add("seconds", seconds)
      .add("hours", seconds / 3600)
      .add("disk_bytes", disk)
      .add("rows", list);
}

}  // namespace tapeformer
