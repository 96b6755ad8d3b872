// Shows the progress of a training run on standard error. If the output is a terminal, one line is updated in
// place. If the output is not a terminal, at most one line is written every 10 seconds. The class Progress is
// not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <string>

namespace tapeformer {

struct ProgressSample {
  int64_t step = 0;
  double loss = 0;           // nats per prediction
  double bits_per_dim = -1;  // not shown if negative
  // Mean speed since the last record of metrics.jsonl. The unit is frames per second for speech models.
  double tokens_per_second = 0;
  int64_t memory_bytes = 0;  // peak memory of live tensors
  int64_t epoch = 0;         // epoch of the step, counted from 1; 0: not shown
  double lr = -1;            // not shown if negative
  double seconds_left = std::numeric_limits<double>::infinity();  // seconds until the time limit
};

enum class ProgressStyle { silent, plain, terminal };

// Returns `silent` if `quiet` is true, `terminal` if standard error is the controlling terminal, and
// otherwise `plain`.
ProgressStyle choose_progress_style(bool quiet);

class Progress {
 public:
  using Clock = std::function<double()>;  // returns seconds since a fixed time

  // `first_step` is the step of the checkpoint from which the run is resumed, or 0 for a new run. If
  // `total_steps` is 0, the remaining time is not shown. The speed is shown in `unit` per second, where
  // `unit` is "tokens" or "frames".
  Progress(std::ostream& out, ProgressStyle style, int64_t first_step, int64_t total_steps, Clock clock = {},
           std::string unit = "tokens");
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows `sample` on the progress line. Skips the sample if the previous line is less than 0.1 seconds old
  // on a terminal, or less than 10 seconds old on other outputs. The first sample and the sample of the last
  // step are always shown.
  void update(const ProgressSample& sample);
  // Prints escape_message(raw) on a line above the progress line.
  void print_message(const std::string& raw);
  // Ends the progress line on a terminal with a newline, so that later output starts on a new line.
  void finish();

 private:
  // Returns the progress line. If the line does not fit in `width` characters, omits the learning rate. If
  // the line still does not fit, also omits the epoch.
  std::string format_line(const ProgressSample& sample, double now, size_t width) const;

  std::ostream& out_;
  ProgressStyle style_;
  int64_t first_step_, total_steps_;
  Clock clock_;
  std::string unit_;
  double start_time_, last_shown_time_ = -1e300;
  std::string line_;  // current line on the terminal, without a newline
};

// Returns a text such as "7s", "3:05", "1:02:03" or "2d 03:00:00".
std::string format_duration(double seconds);
// Returns a text such as "950", "12.3k" or "4.5M".
std::string format_count(double count);
// Returns a text such as "512 B", "3.4 MiB" or "1.2 GiB".
std::string format_bytes(int64_t bytes);

}  // namespace tapeformer
