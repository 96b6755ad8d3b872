// The time and memory of attention kinds at doubling lengths, for benchmarks and reproductions.
#pragma once

#include <cstdint>
#include <vector>

#include "models/attention/attention.h"
#include "train/bench/bench.h"

namespace tapeformer {

// The approximate number of tokens per measurement. Inputs with fewer tokens are processed several times.
inline constexpr int64_t kTokensTimed = 1 << 14;
inline constexpr int64_t kSpreadFrom = 4096;  // smallest length that Spread uses

// Returns the command-line options --shortest, --longest, --batch, --heads, --head-dim and --repeats.
std::vector<OptionSpec> attention_size_options();

// Returns a tensor of standard normal values that requires a gradient. `name` and `seed` select the random
// stream of the values.
Tensor random_rows(const Shape& shape, const char* name, Device device = kCpu, DType dtype = DType::float32,
                   uint64_t seed = kSeed);

// The ratio of the largest to the smallest time per token over several lengths. Lengths below kSpreadFrom are
// ignored. The ratio is near 1 if the time is linear in the length, and 0 if fewer than two lengths remain.
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
  double patience = 20;  // maximum seconds for one pass; lengths that would exceed it are skipped
  Device device = kCpu;
  DType dtype = DType::float32;  // dtype of queries, keys and values
  uint64_t seed = kSeed;         // seed of the inputs and the hashes
  bool causal = true;            // whether to use a causal mask, if the kind supports it
};

struct AttentionSample {
  int64_t length = 0;
  double seconds = 0;      // median time of a forward and backward pass in seconds
  int64_t peak_bytes = 0;  // peak memory of the pass, including inputs and gradients
};

// Measures the time and the peak memory of an attention kind at doubling lengths, from `shortest` to
// `longest`. Each repeat runs all lengths in turn, so that other load on the machine affects all lengths.
std::vector<AttentionSample> measure_attention(const AttentionKind& kind, const OptionValues& options,
                                               const AttentionLengths& lengths);

}  // namespace tapeformer
