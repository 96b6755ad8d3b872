// A schedule that decides when a worker of the thread pool sleeps. All times are in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tapeformer {

// A worker is contended if it shares its processor with another program. Linux preempts such a worker in the
// middle of a range, and the caller of the loop must wait until the worker has finished the range. A
// contended worker therefore works in short periods. After each period, the worker sleeps for as long as it
// has worked, so that the other program can run. Other threads process the ranges in the meantime.
//
// After each preemption, the schedule checks how much processor time the worker has used since its last sleep
// or the previous preemption. If the used time is at most kLongRunTime, the worker is contended. If the used
// time is longer, preemptions are rare, and the worker is not contended.
//
// If preemptions stop, the other program has probably ended, so the periods become longer again. After
// kUndisturbedPeriodsBeforeGrowth periods without preemption, the length of a period doubles after each
// further period. When the length exceeds kLongRunTime, the schedule treats the worker as not contended.
class WorkerSleepSchedule {
 public:
  static constexpr int64_t kMillisecond = 1'000'000;
  // Minimum interval between readings of the processor time. Each reading needs a system call.
  static constexpr int64_t kCheckInterval = kMillisecond;
  static constexpr int64_t kMinStealTime = kMillisecond / 3;  // shorter interruptions are ignored
  static constexpr int64_t kLongRunTime = 20 * kMillisecond;
  // Limits of the length of the first period after a preemption. Later periods may be longer.
  static constexpr int64_t kMinFirstPeriod = kMillisecond / 2, kMaxFirstPeriod = 5 * kMillisecond;
  static constexpr int kUndisturbedPeriodsBeforeGrowth = 8;

  // Starts a measurement at the wall-clock time `wall`. `cpu` is the processor time that the worker has used.
  // A worker must call this function when it starts and after each sleep.
  void restart(int64_t wall, int64_t cpu) {
    start_wall_time_ = wall;
    start_cpu_time_ = cpu;
  }
  // Returns whether update() must be called now. A worker calls needs_update() each time it leaves a loop.
  bool needs_update(int64_t wall) const {
    return wall - start_wall_time_ >= kCheckInterval ||
           (is_contended_ && used_cpu_time_ + (wall - start_wall_time_) >= period_);
  }
  // Ends the current measurement and starts the next one. Returns the time for which the worker must sleep.
  // If the time is 0, the worker continues without a sleep.
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
  // Returns whether the worker was contended at the last update().
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

  // Wall-clock time and processor time at the start of the current measurement.
  int64_t start_wall_time_ = 0, start_cpu_time_ = 0;
  int64_t used_cpu_time_ = 0;         // processor time since the last sleep or preemption
  int64_t period_ = 0;                // length of a period, in processor time
  int undisturbed_period_count_ = 0;  // periods since the last preemption
  bool is_contended_ = false;
};

}  // namespace tapeformer
