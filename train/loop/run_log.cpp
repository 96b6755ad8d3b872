#include "train/loop/run_log.h"

#include <iostream>

#include "core/base/errors.h"
#include "core/system/log.h"

namespace tapeformer {

RunLog::RunLog(const Folder* run_dir, bool quiet, const RunState& state, const char* unit)
    : progress_(std::cerr, choose_progress_style(quiet || !run_dir), state.step, state.total_steps,
                Progress::Clock(), unit) {
  if (run_dir) metrics_writer_.emplace(*run_dir);
}

void RunLog::open_event_file(const Folder& run_dir, const RunState& state, const std::string& config_toml) {
  if (state.step >= state.total_steps && state.last_evaluation_step == state.step) return;
  try_to_write_events([&] {
    event_writer_ = std::make_unique<EventWriter>(run_dir);
    event_writer_->write_session_start(state.step);
    event_writer_->write_text("config", state.step, "```toml\n" + config_toml + "```\n");
    for (const MetricRecord& record : read_valid_metrics(run_dir.make_entry_path(kMetricsFileName)).records)
      if (get_metric_number(record, "step", -1) == static_cast<double>(state.step))
        event_writer_->write_scalars(record);
  });
}

void RunLog::try_to_write_events(const std::function<void()>& write) try {
  write();
} catch (const FileError& error) {
  event_writer_.reset();
  warn(concat_text(error.what(), "; training continues without TensorBoard event files"));
}

void RunLog::write(const MetricRecord& record) {
  if (!metrics_writer_) return;
  const bool waited = metrics_writer_->pending_record_count() > 0;
  metrics_writer_->write(record);
  if (!waited && metrics_writer_->pending_record_count() > 0)
    warn(metrics_writer_->last_error() + "; the records wait in memory until the file can be written");
  if (event_writer_) try_to_write_events([&] { event_writer_->write_scalars(record); });
}

void RunLog::flush() {
  if (!metrics_writer_) return;
  metrics_writer_->flush();
  if (metrics_writer_->pending_record_count() > 0)
    warn(concat_text(metrics_writer_->last_error(), "; ", metrics_writer_->pending_record_count(),
                     " records are lost"));
}

void RunLog::warn(const std::string& text) {
  progress_.finish();
  log_warning(text);
}

}  // namespace tapeformer
