// Schedule of the pauses of a pool worker. All times are in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tapeformer {

// A worker that shares its processor with another program is preempted when its time slice ends. The worker
// is usually inside a range then, and the caller of the loop must wait for the worker. Such a worker is
// called contended. It works in periods that are shorter than its time slice, and sleeps after each
// period as long as the period took. Meanwhile the other program runs, and the caller takes all ranges.
//
// A worker becomes contended if it is preempted after at most kLongRunTime of processor time, counted from
// its start, its last rest or its last preemption. After kUndisturbedPeriodsBeforeGrowth periods without
// preemption, each further period is twice as long as the period before it. The worker becomes uncontended
// when the length of a period exceeds kLongRunTime, or when it is preempted after more than kLongRunTime of
// processor time.
class WorkerSleepSchedule {
 public:
  static constexpr int64_t kMillisecond = 1'000'000;
  // Interval between readings of the processor time, which need a system call.
  static constexpr int64_t kCheckInterval = kMillisecond;
  static constexpr int64_t kMinStealTime = kMillisecond / 3;  // shorter interruptions are ignored
  // Processor time after which a preemption is normal. See above.
  static constexpr int64_t kLongRunTime = 20 * kMillisecond;
  // Limits of the length of a period after a preemption. Later periods may be longer.
  static constexpr int64_t kMinFirstPeriod = kMillisecond / 2, kMaxFirstPeriod = 5 * kMillisecond;
  static constexpr int kUndisturbedPeriodsBeforeGrowth =
      8;  // periods without preemption before a period becomes longer

  // Starts a measurement. `wall` is the current time, and `cpu` the processor time of the worker. Must be
  // called when the worker starts, and after it has slept.
  void restart(int64_t wall, int64_t cpu) {
    start_wall_time_ = wall;
    start_cpu_time_ = cpu;
  }
  // Returns whether update() must be called after the current loop.
  bool needs_update(int64_t wall) const {
    return wall - start_wall_time_ >= kCheckInterval ||
           (is_contended_ && used_cpu_time_ + (wall - start_wall_time_) >= period_);
  }
  // Ends a measurement and starts the next one. Returns the time for which the worker must sleep, or 0. Call
  // it after a loop if needs_update() is true.
  int64_t update(int64_t wall, int64_t cpu) {
    const int64_t steal_time = (wall - start_wall_time_) - (cpu - start_cpu_time_);
    used_cpu_time_ += cpu - start_cpu_time_;
    restart(wall, cpu);
    if (steal_time < kMinStealTime)
      return is_contended_ && used_cpu_time_ >= period_ ? end_period_and_get_sleep_time() : 0;
    if (used_cpu_time_ > kLongRunTime) {
      is_contended_ = false;
      used_cpu_time_ = 0;
      return 0;
    }
    is_contended_ = true;
    undisturbed_period_count_ = 0;
    period_ = std::clamp(used_cpu_time_ * 7 / 10, kMinFirstPeriod, kMaxFirstPeriod);
    return reset_and_get_sleep_time();
  }
  bool is_contended() const { return is_contended_; }

 private:
  int64_t end_period_and_get_sleep_time() {
    if (++undisturbed_period_count_ > kUndisturbedPeriodsBeforeGrowth) period_ *= 2;
    if (period_ > kLongRunTime) is_contended_ = false;
    return reset_and_get_sleep_time();
  }
  int64_t reset_and_get_sleep_time() {
    const int64_t time = std::min(used_cpu_time_, kLongRunTime);
    used_cpu_time_ = 0;
    return time;
  }

  int64_t start_wall_time_ = 0,
          start_cpu_time_ = 0;        // time and processor time at the start of the measurement
  int64_t used_cpu_time_ = 0;         // processor time since the last rest
  int64_t period_ = 0;                // length of a period, in processor time
  int undisturbed_period_count_ = 0;  // periods since the last preemption
  bool is_contended_ = false;
};

}  // namespace tapeformer
