// The estimates of --dry-run: the time, memory and disk space that the trainings and measurements of a table
// need. To measure its speed, each model is trained for a few steps. All files are temporary.
#include <unistd.h>

#include "core/errors.h"
#include "core/system/files.h"
#include "core/threads.h"
#include "train/reproduce/runner.h"
#include "train/reproduce/table_json.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// A temporary folder. The destructor removes the folder and its contents.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(fs::temp_directory_path() / make_temporary_name(concat_text("tapeformer-", getpid()))) {
    fs::create_directories(path_);
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

// Returns the estimated bytes of all checkpoints of a run. A checkpoint contains the weights, two moments and
// an optional average in float32.
int64_t run_bytes(const Config& config, int64_t parameters) {
  constexpr int64_t kBestAndNext = 2;  // the best checkpoint, and the checkpoint that is being written
  const int64_t tensors = 3 + (config.optimizer.ema > 0 ? 1 : 0);
  return parameters * tensors * static_cast<int64_t>(sizeof(float)) * (config.train.keep_last + kBestAndNext);
}

// Returns the estimated seconds of the measurements of a row. `step` is the time of a training step in
// seconds.
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

Report estimate_row(const Table& table, const ReproductionOptions& options, const CommandContext& context,
                    const Row& row, const StopSignals& signals) {
  const Trial trial = make_trial(options, context, row, options.seeds.front());
  const Job job = make_training_job(options, context, trial, true);
  JobResult result;
  run_jobs(
      {job}, 1, options.quiet, [&signals] { return signals.requested_signal(); },
      [&](size_t, const JobResult& ended) { result = ended; });
  if (signals.requested_signal() != 0) throw Stopped();
  if (result.exit_status != 0) throw CommandFailed(row.name + ": " + result.error, result.exit_status);
  const Json output = read_job_output(job);
  const auto seeds = static_cast<int64_t>(options.seeds.size());
  const double training = output.value("estimated_seconds", 0.0) * static_cast<double>(seeds);
  const double measuring =
      estimate_measuring_seconds(table, trial, output.value("seconds_per_step", 0.0), seeds);
  const auto parameters = output.value("parameters", int64_t{0});
  return Report()
      .add("row", row.name)
      .add("parameters", parameters)
      .add("steps", output.value("steps", int64_t{0}))
      .add("training_seconds", training)
      .add("measuring_seconds", measuring)
      .add("memory_bytes", output.value("memory_bytes", int64_t{0}))
      .add("disk_bytes", run_bytes(trial.config, parameters) * seeds)
      .add("device_model", output.value("device_model", std::string()));
}

double read_number_field(const Report& row, const std::string& name) {
  for (const auto& [field, value] : row.fields())
    if (field == name) {
      if (const auto* number = std::get_if<double>(&value)) return *number;
      if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
    }
  return 0;
}

}  // namespace

Report dry_run_table(const Reproduction& reproduction, const ReproductionOptions& options) {
  const Table table = reproduction.make_table(options);
  const std::vector<Row> rows = select_rows(table, options);
  Report report;
  report.add("title", table.title).add("seeds", options.seeds);
  if (!table.has_trainings) {
    std::vector<Report> list;
    for (const Row& row : rows) list.push_back(Report().add("row", row.name));
    return report.add("trainings", int64_t{0})
        .add("estimate",
             "none: the rows train no models, and the time of their measurements is not estimated")
        .add("rows", list);
  }
  const StopSignals signals;
  const ScratchFolder scratch;
  const CommandContext context{scratch.path(), scratch.path(), scratch.path() / "runs", get_thread_count(),
                               options.device_name()};
  std::vector<Report> list;
  for (const Row& row : rows)
    if (row.is_trained) list.push_back(estimate_row(table, options, context, row, signals));
  double seconds = 0, disk = 0;
  for (const Report& row : list) {
    seconds += read_number_field(row, "training_seconds") + read_number_field(row, "measuring_seconds");
    disk += read_number_field(row, "disk_bytes");
  }
  return report.add("trainings", static_cast<int64_t>(list.size() * options.seeds.size()))
      .add("seconds", seconds)
      .add("hours", seconds / 3600)
      .add("disk_bytes", static_cast<int64_t>(disk))
      .add("rows", list);
}

}  // namespace tapeformer
