// Measurements of the CPU kernels of LSH attention, for benchmarks.
#pragma once

#include <atomic>
#include <cstdint>

namespace tapeformer {

// Time of each stage in nanoseconds, summed over threads, and the number of multiply-adds in matrix products.
struct LshStages {
  std::atomic<int64_t> hash{0}, sort{0}, gather{0}, products{0}, softmax{0}, scatter{0};
  std::atomic<int64_t> multiply_adds{0};
};

// Destination of the measurements, or null. Set it only while no kernel runs.
extern LshStages* lsh_stages;

}  // namespace tapeformer
