// Time measurements inside the CPU kernels of LSH attention, for benchmarks.
#pragma once

#include <atomic>
#include <cstdint>

namespace tapeformer {

// The time in nanoseconds that all threads together spend in each stage of the kernels, and the number of
// multiply-adds of the matrix products.
struct LshStageTimes {
  std::atomic<int64_t> hash{0}, sort{0}, gather{0}, products{0}, softmax{0}, scatter{0};
  std::atomic<int64_t> multiply_adds{0};
};

// The object to which the kernels add their measurements. If the pointer is null, the kernels measure
// nothing. The pointer must not change while a kernel runs.
extern LshStageTimes* lsh_stage_times;

}  // namespace tapeformer
