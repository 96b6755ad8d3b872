// Schedule of the pauses of a pool worker. All times are in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tapeformer {

// A worker that shares its processor with another program is preempted when its time slice ends. The worker
// is usually inside a range then, and the caller of the loop must wait for the worker. Such a worker is
// called contended. It works in bursts that are shorter than its time slice, and sleeps after each burst as
// long as the burst took. Meanwhile the other program runs, and the caller takes all ranges.
//
// A worker becomes contended if it is preempted after at most kLongRun of processor time, counted from its
// start, its last rest or its last preemption. After kSteadyBursts bursts without preemption, each further
// burst is twice as long as the burst before it. The worker becomes uncontended when the length of a burst
// exceeds kLongRun, or when it is preempted after more than kLongRun of processor time.
class WorkerSleepSchedule {
 public:
  static constexpr int64_t kMillisecond = 1'000'000;
  // Interval between readings of the processor time, which need a system call.
  static constexpr int64_t kCheckInterval = kMillisecond;
  static constexpr int64_t kMinStolen = kMillisecond / 3;  // shorter interruptions are ignored
  // Processor time after which a preemption is normal. See above.
  static constexpr int64_t kLongRun = 20 * kMillisecond;
  // Limits of the length of a burst after a preemption. Later bursts may be longer.
  static constexpr int64_t kMinFirstBurst = kMillisecond / 2, kMaxFirstBurst = 5 * kMillisecond;
  static constexpr int kSteadyBursts = 8;  // bursts without preemption before a burst becomes longer

  // Starts a measurement. `wall` is the current time, and `cpu` the processor time of the worker. Must be
  // called when the worker starts, and after it has slept.
  void restart(int64_t wall, int64_t cpu) {
    wall_ = wall;
    cpu_ = cpu;
  }
  // Returns whether update() must be called after the current loop.
  bool needs_update(int64_t wall) const {
    return wall - wall_ >= kCheckInterval || (contended_ && used_ + (wall - wall_) >= burst_);
  }
  // Ends a measurement and starts the next one. Returns the time for which the worker must sleep, or 0. Call
  // it after a loop if needs_update() is true.
  int64_t update(int64_t wall, int64_t cpu) {
    const int64_t stolen = (wall - wall_) - (cpu - cpu_);
    used_ += cpu - cpu_;
    restart(wall, cpu);
    if (stolen < kMinStolen) return contended_ && used_ >= burst_ ? end_burst_and_get_sleep_time() : 0;
    if (used_ > kLongRun) {
      contended_ = false;
      used_ = 0;
      return 0;
    }
    contended_ = true;
    steady_ = 0;
    burst_ = std::clamp(used_ * 7 / 10, kMinFirstBurst, kMaxFirstBurst);
    return reset_and_get_sleep_time();
  }
  bool is_contended() const { return contended_; }

 private:
  int64_t end_burst_and_get_sleep_time() {
    if (++steady_ > kSteadyBursts) burst_ *= 2;
    if (burst_ > kLongRun) contended_ = false;
    return reset_and_get_sleep_time();
  }
  int64_t reset_and_get_sleep_time() {
    const int64_t time = std::min(used_, kLongRun);
    used_ = 0;
    return time;
  }

  int64_t wall_ = 0, cpu_ = 0;  // time and processor time at the start of the measurement
  int64_t used_ = 0;            // processor time since the last rest
  int64_t burst_ = 0;           // length of a burst, in processor time
  int steady_ = 0;              // bursts since the last preemption
  bool contended_ = false;
};

}  // namespace tapeformer
