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
#include "train/reproduce/measurement_kind.h"
#include "train/reproduce/runner.h"
#include "train/reproduce/table_settings.h"

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
int64_t estimate_run_bytes(const Config& config, int64_t parameters) {
  constexpr int64_t kBestAndNext = 2;  // the best checkpoint, and the checkpoint that is being written
  const int64_t tensors = 3 + (config.optimizer.ema > 0 ? 1 : 0);
  return parameters * tensors * static_cast<int64_t>(sizeof(float)) * (config.train.keep_last + kBestAndNext);
}

// Returns the estimated time in seconds of the measurements of a row for all seeds. `step` is the time of a
// training step in seconds. A forward pass is assumed to take a third of the time of a training step.
double estimate_measuring_seconds(const Table& table, const CommandContext& context, const Trial& trial,
                                  double step) {
  constexpr double kForwardShare = 1.0 / 3;
  const double forward = step * kForwardShare / static_cast<double>(trial.config.data.batch_size);
  double seconds = 0;
  for (const Measurement& measurement : table.measurements) {
    const MeasurementKind& kind = *measurement.kind;
    if (!measurement.applies_to(trial.row) || !kind.estimate_seconds) continue;
    const auto options = read_measurement_options(measurement, context.make_variables(trial));
    seconds += kind.estimate_seconds(options, forward, trial.config) *
               static_cast<double>(kind.every_seed ? std::ssize(context.options.seeds) : 1);
  }
  return seconds;
}

// Estimated costs. The times and the disk space are sums over all seeds and rows.
struct Estimate {
  double training_seconds = 0, measuring_seconds = 0;
  int64_t disk_bytes = 0;
  std::vector<Report> rows = {};

  void add(const Table& table, const CommandContext& context, const Trial& trial, const Json& output) {
    const int64_t parameters = output.value("parameters", int64_t{0}),
                  seeds = std::ssize(context.options.seeds);
    const double training = output.value("estimated_seconds", 0.0) * static_cast<double>(seeds);
    const double measuring =
        estimate_measuring_seconds(table, context, trial, output.value("seconds_per_step", 0.0));
    const int64_t bytes = estimate_run_bytes(trial.config, parameters) * seeds;
    training_seconds += training;
    measuring_seconds += measuring;
    disk_bytes += bytes;
    rows.push_back(Report()
                       .add("row", trial.row.name)
                       .add("parameters", parameters)
                       .add("steps", output.value("steps", int64_t{0}))
                       .add("training_seconds", training)
                       .add("measuring_seconds", measuring)
                       .add("memory_bytes", output.value("memory_bytes", int64_t{0}))
                       .add("disk_bytes", bytes));
  }
};

// Runs `train --dry-run` for each trained row with the first seed, at most `parallel` at the same time. If
// there are fewer than `parallel` trained rows, also trains other seeds, so that `parallel` training runs
// share the machine, as in the reproduction. Throws CommandError if a command fails.
Estimate estimate_rows(const Table& table, const ReproductionOptions& options, const std::vector<Row>& rows,
                       int64_t parallel) {
  const StopSignalScope signals;
  const ScratchFolder scratch;
  const CommandContext context{.options = options,
                               .output_folder = scratch.path(),
                               .log_folder = scratch.path(),
                               .runs_folder = scratch.path() / "runs",
                               .threads = std::max<int64_t>(get_thread_count() / parallel, 1),
                               .device = options.device,
                               .signals = signals};
  std::vector<Trial> trials;
  std::vector<Job> jobs;
  for (const int64_t seed : options.seeds)
    for (const Row& row : rows)
      if (row.is_trained && (seed == options.seeds.front() || std::ssize(trials) < parallel)) {
        trials.push_back(context.make_trial(row, seed));
        jobs.push_back(context.make_training_job(trials.back(), true));
      }
  std::optional<CommandError> failure;
  run_jobs(
      jobs, parallel, options.quiet, [&] { return failure ? SIGTERM : signals.last_signal(); },
      [&](size_t i, const JobResult& ended) {
        if (ended.exit_status != 0 && !failure)
          failure.emplace(trials[i].row.name + ": " + ended.error, ended.exit_status);
      });
  if (signals.last_signal() != 0) throw StoppedError();
  if (failure) throw *failure;
  Estimate estimate;
  for (size_t i = 0; i < jobs.size(); ++i)
    if (trials[i].config.run.seed == options.seeds.front())
      estimate.add(table, context, trials[i], read_job_output(jobs[i]));
  return estimate;
}

}  // namespace

Report estimate_reproduction_costs(const Table& table, const ReproductionOptions& options) {
  std::vector<Row> rows;
  for (const Row& row : select_rows(table, options)) {
    if (!row.pretraining.empty()) rows.push_back(make_pretraining_row(row));
    rows.push_back(row);
  }
  const int64_t trained =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.is_trained; });
  Report report;
  report.add("title", table.title).add("seeds", options.seeds);
  if (trained == 0) {
    std::vector<Report> list;
    for (const Row& row : rows) list.push_back(Report().add("row", row.name));
    return report.add("trainings", int64_t{0})
        .add("estimate",
             "none: the rows train no models, and the time of their measurements is not estimated")
        .add("rows", list);
  }
  const int64_t trainings = trained * std::ssize(options.seeds);
  const int64_t parallel = std::clamp<int64_t>(options.max_parallel_jobs, 1, trainings);
  const Estimate estimate = estimate_rows(table, options, rows, parallel);
  const double seconds =
      estimate.training_seconds / static_cast<double>(parallel) + estimate.measuring_seconds;
  return report.add("trainings", trainings)
      .add("jobs", parallel)
      .add("seconds", seconds)
      .add("hours", seconds / 3600)
      .add("disk_bytes", estimate.disk_bytes)
      .add("rows", estimate.rows);
}

}  // namespace tapeformer
