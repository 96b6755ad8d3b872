// Time and memory of attention kinds at doubling lengths, for the benchmark and the figure that show them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/attention/attention.h"
#include "train/bench/bench.h"

namespace tapeformer {

inline constexpr int64_t kTokensTimed = 1 << 14;  // short sequences run several times for one time
inline constexpr int64_t kFlatFrom = 4096;        // "flat" compares the times per token from here on

// Returns standard normal rows that require a gradient. `name` and `seed` select the random stream.
Tensor random_rows(const Shape& shape, const char* name, Device device = kCpu, DType dtype = DType::float32,
                   uint64_t seed = kSeed);

// Slowest over fastest of the times per token from kFlatFrom on; 1 is flat, 0 says that there are too few.
class Spread {
 public:
  void add(int64_t length, double seconds_per_token);
  double value() const { return count_ > 1 ? slowest_ / fastest_ : 0; }

 private:
  int64_t count_ = 0;
  double fastest_ = 0, slowest_ = 0;
};

struct AttentionLengths {
  int64_t shortest = 512, longest = 65536;
  int64_t batch = 1, heads = 8, head_dim = 64;
  int64_t repeats = 5;
  double patience = 20;  // seconds that one pass may take; longer lengths are left out
  Device device = kCpu;
  DType dtype = DType::float32;  // bfloat16 on devices only
  uint64_t seed = kSeed;         // seed of the inputs and the hashes
};

struct AttentionSample {
  int64_t length = 0;
  double seconds = 0;      // of one causal forward and backward, the median
  int64_t peak_bytes = 0;  // inputs and gradients included
};

// Each repeat takes the lengths in turn, so that a disturbance of the machine hits them all.
std::vector<AttentionSample> measure_attention(const AttentionKind& kind, const OptionValues& options,
                                               const AttentionLengths& lengths);

}  // namespace tapeformer
