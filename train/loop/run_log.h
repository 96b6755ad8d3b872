// The output of a training run. Records are written to metrics.jsonl. Progress and warnings are written to
// standard error.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "train/loop/progress.h"
#include "train/loop/run_state.h"
#include "train/loop/tensorboard.h"
#include "train/metrics.h"

namespace tapeformer {

class RunLog {
 public:
  // Opens metrics.jsonl in the run directory. If `run_dir` is null, as on processes other than process 0, the
  // RunLog writes no records and shows no progress. If `quiet` is true, the RunLog shows no progress. The
  // speed is shown in `unit` per second, where `unit` is "tokens" or "frames".
  RunLog(const Folder* run_dir, bool quiet, const RunState& state, const char* unit);

  // Creates a TensorBoard event file that contains the config and, because the start of a session also
  // removes them, the records of `state.step` in metrics.jsonl. Later calls of write() also add records to
  // the event file. If the run has no step and no evaluation left, does nothing. If the event file cannot be
  // written, logs a warning and closes the event file.
  void open_event_file(const Folder& run_dir, const RunState& state, const std::string& config_toml);

  // Writes a record. If the file cannot be written, for example because the disk is full, logs a warning
  // and keeps the record in memory until the file can be written.
  void write(const MetricRecord& record);
  // Writes the records that are still in memory. If this fails, logs a warning.
  void flush();

  void show_progress(const ProgressSample& sample) { progress_.update(sample); }
  // Prints a message on its own line. If the RunLog shows no progress, prints nothing.
  void print_message(const std::string& text) { progress_.print_message(text); }
  // Logs a warning on its own line.
  void warn(const std::string& text);
  // Ends the progress line.
  void finish() { progress_.finish(); }

 private:
  // Calls `write`. If `write` throws FileError, logs a warning and closes the event file.
  void try_to_write_events(const std::function<void()>& write);

  std::optional<MetricsWriter> metrics_writer_;
  std::unique_ptr<EventWriter> event_writer_;  // null without TensorBoard
  Progress progress_;
};

}  // namespace tapeformer
