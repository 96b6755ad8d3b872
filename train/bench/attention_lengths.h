// The time and memory of attention kinds at doubling lengths, for benchmarks and reproductions.
#pragma once

#include <cstdint>
#include <vector>

#include "models/attention/attention.h"
#include "train/bench/bench.h"

namespace tapeformer {

// The approximate number of tokens per measurement. If an input has fewer tokens, a measurement processes the
// input several times.
inline constexpr int64_t kTokensPerMeasurement = 1 << 14;
inline constexpr int64_t kMinSpreadLength = 4096;  // smallest length that TimeSpread uses

// Returns the command-line options --shortest, --longest, --batch, --heads, --head-dim and --repeats.
std::vector<OptionSpec> make_attention_size_options();

// Returns a tensor of standard normal values that requires a gradient. `name` and `seed` select the random
// stream of the values.
Tensor make_random_tensor(const Shape& shape, const char* name, Device device = kCpu,
                          DType dtype = DType::float32, uint64_t seed = kInputSeed);

// The ratio of the largest to the smallest time per token over several lengths. Lengths below
// kMinSpreadLength are ignored. The ratio is near 1 if the time is linear in the length, and 0 if fewer than
// two lengths remain.
class TimeSpread {
 public:
  void add(int64_t length, double seconds_per_token);
  double ratio() const { return count_ > 1 ? slowest_ / fastest_ : 0; }

 private:
  int64_t count_ = 0;
  double fastest_ = 0, slowest_ = 0;
};

struct AttentionTimingOptions {
  int64_t min_length = 512, max_length = 65536;
  int64_t batch = 1, heads = 8, head_dim = 64;
  int64_t repeats = 5;
  double max_pass_seconds = 20;  // time limit of a pass in seconds; lengths that could exceed it are skipped
  Device device = kCpu;
  DType dtype = DType::float32;  // dtype of queries, keys and values
  uint64_t seed = kInputSeed;    // seed of the inputs and the hashes
  bool use_causal_mask = true;   // whether to use a causal mask, if the kind supports it
};

struct AttentionTiming {
  int64_t length = 0;
  double median_seconds = 0;  // median time of a forward and backward pass in seconds
  int64_t peak_bytes = 0;     // peak memory of the pass, including inputs and gradients
};

// Measures the time and the peak memory of an attention kind at doubling lengths, from `min_length` to
// `max_length`. Each repeat runs all lengths in turn, so that other load on the machine affects all lengths.
std::vector<AttentionTiming> measure_attention(const AttentionKind& kind, const OptionValues& options,
                                               const AttentionTimingOptions& timing_options);

}  // namespace tapeformer
