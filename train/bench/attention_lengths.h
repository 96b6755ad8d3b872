// Time and memory of attention kinds at doubling lengths, for the benchmark and the figure that show them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/attention/attention.h"

namespace tapeformer {

struct AttentionLengths {
  int64_t shortest = 512, longest = 65536;
  int64_t batch = 1, heads = 8, head_dim = 64;
  int64_t repeats = 5;
  double patience = 20;  // seconds that one pass may take; longer lengths are left out
  Device device = kCpu;
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
