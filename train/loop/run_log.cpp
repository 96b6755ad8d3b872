#include "train/loop/run_log.h"

#include <iostream>

#include "core/errors.h"
#include "core/system/log.h"

namespace tapeformer {

RunLog::RunLog(const Folder* run_dir, bool quiet, const RunState& state, const char* unit)
    : progress_(std::cerr, choose_progress_style(quiet || !run_dir), state.step, state.total_steps,
                Progress::Clock(), unit) {
  if (run_dir) metrics_.emplace(*run_dir);
}

void RunLog::open_event_file(const Folder& run_dir, const RunState& state, const std::string& config_toml) {
  if (state.step >= state.total_steps) return;
  try_to_write_events([&] {
    events_ = std::make_unique<EventWriter>(run_dir);
    events_->write_start(state.step);
    events_->write_text("config", state.step, "```toml\n" + config_toml + "```\n");
  });
}

void RunLog::try_to_write_events(const std::function<void()>& write) try {
  write();
} catch (const FileError& error) {
  events_.reset();
  warn(concat_text(error.what(), "; training continues without TensorBoard event files"));
}

void RunLog::write(const MetricRecord& record) {
  if (!metrics_) return;
  const bool waited = metrics_->waiting_record_count() > 0;
  metrics_->write(record);
  if (!waited && metrics_->waiting_record_count() > 0)
    warn(metrics_->last_error() + "; the records wait in memory until the file can be written");
  if (events_) try_to_write_events([&] { events_->write_scalars(record); });
}

void RunLog::flush() {
  if (!metrics_) return;
  metrics_->flush();
  if (metrics_->waiting_record_count() > 0)
    warn(concat_text(metrics_->last_error(), "; ", metrics_->waiting_record_count(), " records are lost"));
}

void RunLog::warn(const std::string& text) {
  progress_.finish();
  log_warning(text);
}

}  // namespace tapeformer
