#include "train/loop/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "core/system/terminal.h"

namespace tapeformer {
namespace {

constexpr double kTerminalInterval = 0.1;  // seconds between updates on a terminal
constexpr double kPlainInterval = 10;      // seconds between lines on other outputs

double read_steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, args...);
  return buffer;
}

// Returns the maximum width of a progress line: one character less than the terminal, because a line that
// wraps cannot be rewritten.
size_t find_terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 120u;
}

}  // namespace

ProgressStyle choose_progress_style(bool quiet) {
  if (quiet) return ProgressStyle::silent;
  return is_controlling_terminal(STDERR_FILENO) ? ProgressStyle::terminal : ProgressStyle::plain;
}

Progress::Progress(std::ostream& out, ProgressStyle style, int64_t first_step, int64_t total_steps,
                   Clock clock, std::string unit)
    : out_(out),
      style_(style),
      first_step_(first_step),
      total_steps_(total_steps),
      clock_(clock ? std::move(clock) : Clock(read_steady_clock)),
      unit_(std::move(unit)),
      start_time_(clock_()) {}

std::string Progress::format_line(const ProgressSample& sample, double now, size_t width) const {
  std::string step = concat_text("step ", sample.step);
  if (total_steps_ > 0) step += concat_text("/", total_steps_);
  std::string figures = format("  loss %.4f", sample.loss);
  if (sample.bits_per_dim >= 0) figures += format("  %.4f bits/dim", sample.bits_per_dim);
  std::string speed = concat_text("  ", format_count(sample.tokens_per_second), " ", unit_, "/s");
  const auto done = static_cast<double>(sample.step - first_step_);
  if (total_steps_ > 0 && done > 0) {
    const auto steps_left = static_cast<double>(total_steps_ - sample.step);
    const double seconds = std::min((now - start_time_) / done * steps_left, sample.seconds_left);
    speed += concat_text("  ETA ", format_duration(seconds));
  }
  speed += concat_text("  ", format_bytes(sample.memory_bytes));

  const std::string epoch = sample.epoch > 0 ? concat_text("  epoch ", sample.epoch) : "";
  const std::string lr = sample.lr >= 0 ? format("  lr %.2e", sample.lr) : "";
  const size_t needed = step.size() + figures.size() + speed.size();
  const bool epoch_fits = needed + epoch.size() <= width;
  const bool lr_fits = epoch_fits && needed + epoch.size() + lr.size() <= width;
  return step + (epoch_fits ? epoch : "") + figures + (lr_fits ? lr : "") + speed;
}

void Progress::update(const ProgressSample& sample) {
  if (style_ == ProgressStyle::silent) return;
  const double now = clock_();
  const double interval = style_ == ProgressStyle::terminal ? kTerminalInterval : kPlainInterval;
  if (now - last_shown_time_ < interval && sample.step != total_steps_) return;
  last_shown_time_ = now;
  if (style_ == ProgressStyle::terminal) {
    const size_t width = find_terminal_width();
    line_ = format_line(sample, now, width).substr(0, width);
    out_ << "\r" << line_ << "\x1b[K" << std::flush;
  } else {
    out_ << format_line(sample, now, std::string::npos) << std::endl;
  }
}

void Progress::print_message(const std::string& raw) {
  if (style_ == ProgressStyle::silent) return;
  const std::string text = escape_message(raw);
  if (line_.empty())
    out_ << text << std::endl;
  else
    out_ << "\r" << text << "\x1b[K\n" << line_ << std::flush;
}

void Progress::finish() {
  if (!line_.empty()) out_ << std::endl;
  line_.clear();
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long minutes = whole / 60 % 60, hours = whole / 3600 % 24, days = whole / 86400;
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lld:%02lld", minutes, whole % 60);
  if (days == 0) return format("%lld:%02lld:%02lld", hours, minutes, whole % 60);
  return format("%lldd %02lld:%02lld:%02lld", days, hours, minutes, whole % 60);
}

std::string format_count(double count) {
  if (count >= 1e6) return format("%.1fM", count / 1e6);
  return count >= 1e3 ? format("%.1fk", count / 1e3) : format("%.0f", count);
}

std::string format_bytes(int64_t bytes) {
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return format("%.1f %s", value, units[unit]);
}

}  // namespace tapeformer
