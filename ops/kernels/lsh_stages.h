// Time measurements inside the CPU kernels of LSH attention, for benchmarks.
#pragma once

#include <atomic>
#include <cstdint>

namespace tapeformer {

// Time of each stage of the kernels in nanoseconds, summed over threads, and the number of multiply-adds of
// the matrix products.
struct LshStageTimes {
  std::atomic<int64_t> hash{0}, sort{0}, gather{0}, products{0}, softmax{0}, scatter{0};
  std::atomic<int64_t> multiply_adds{0};
};

// The kernels add their measurements to this object. If null, the kernels measure nothing. Change the pointer
// only while no kernel runs.
extern LshStageTimes* lsh_stage_times;

}  // namespace tapeformer
