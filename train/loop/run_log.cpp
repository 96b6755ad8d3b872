#include "train/loop/run_log.h"

#include <iostream>

#include "core/errors.h"
#include "core/system/log.h"

namespace tapeformer {

RunLog::RunLog(const Folder* run_dir, bool quiet, const RunState& state, const char* unit)
    : progress_(std::cerr, progress_style(quiet || !run_dir), state.step, state.total_steps,
                Progress::Clock(), unit) {
  if (run_dir) metrics_.emplace(*run_dir);
}

void RunLog::write_events(const Folder& run_dir, const RunState& state, const std::string& config_toml) {
  if (state.step >= state.total_steps) return;
  update_events([&] {
    events_ = std::make_unique<EventWriter>(run_dir);
    events_->start(state.step);
    events_->text("config", state.step, "```toml\n" + config_toml + "```\n");
  });
}

void RunLog::update_events(const std::function<void()>& write) try {
  write();
} catch (const FileError& error) {
  events_.reset();
  warn(concat_text(error.what(), "; training continues without TensorBoard event files"));
}

void RunLog::write(const MetricRecord& record) {
  if (!metrics_) return;
  const bool waited = metrics_->waiting() > 0;
  metrics_->write(record);
  if (!waited && metrics_->waiting() > 0)
    warn(metrics_->problem() + "; the records wait in memory until the file can be written");
  if (events_) update_events([&] { events_->scalars(record); });
}

void RunLog::flush() {
  if (!metrics_) return;
  metrics_->flush();
  if (metrics_->waiting() > 0)
    warn(concat_text(metrics_->problem(), "; ", metrics_->waiting(), " records are lost"));
}

void RunLog::warn(const std::string& text) {
  progress_.finish();
  log_warning(text);
}

}  // namespace tapeformer
