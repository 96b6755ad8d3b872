// Timing of the stages of LSH attention, for benchmarks.
#pragma once

#include <atomic>
#include <chrono>

#include "ops/kernels/lsh_stages.h"

namespace tapeformer::cpu {

// A stopwatch of one thread that adds the time of each stage to `lsh_stage_times`, in nanoseconds. Does
// nothing if `lsh_stage_times` is null.
class StageClock {
 public:
  using Stage = std::atomic<int64_t> LshStageTimes::*;
  void start() {
    if (lsh_stage_times) last_ = now();
  }
  void lap(Stage stage) {
    if (!lsh_stage_times) return;
    const int64_t time = now();
    (lsh_stage_times->*stage).fetch_add(time - last_, std::memory_order_relaxed);
    last_ = time;
  }
  static void count_multiply_adds(int64_t count) {
    if (lsh_stage_times) lsh_stage_times->multiply_adds.fetch_add(count, std::memory_order_relaxed);
  }

 private:
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  int64_t last_ = 0;
};

}  // namespace tapeformer::cpu
