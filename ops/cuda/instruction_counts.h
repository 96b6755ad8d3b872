// Numbers of instructions that a warp executes in attention kernels that use tensor cores. WorkLog uses these
// numbers to estimate the duration of a kernel launch. The instructions were counted in machine code for
// sm_90a (nvcc 13.0), as docs/device-cost.md explains.
#pragma once

#include <cstdint>

namespace tapeformer::cuda {

// Counts for a head dimension of at most 32 (`narrow`) and of at most 64 (`wide`).
struct InstructionCounts {
  int narrow, wide;

  constexpr int count(int width) const { return width > 32 ? wide : narrow; }
};

// Instructions per warp for one chunk of linear attention with the feature map elu + 1. `scan` is the number
// for the kernel that computes outputs with a causal mask, and `state` is the number for the kernel that
// computes the states of segments. kLinearInstructions has one element for each value of Scan
// (linear_attention_head.h).
struct LinearInstructionCounts {
  InstructionCounts scan, state;
};
inline constexpr LinearInstructionCounts kLinearInstructions[] = {
    {{986, 1666}, {224, 421}}, {{1918, 3395}, {291, 559}}, {{1665, 2782}, {379, 623}}};
// Instructions per warp for one tile of softmax attention without masked query-key pairs. A tile has
// kTileTokens queries and kTileTokens keys.
struct SoftmaxInstructionCounts {
  InstructionCounts without_dropout, with_dropout;
};
inline constexpr SoftmaxInstructionCounts kSoftmaxResult{{410, 508}, {957, 1098}},
    kSoftmaxQueryGradient{{359, 462}, {1060, 1215}}, kSoftmaxKeyValueGradients{{519, 657}, {1405, 1558}};
// Instructions per warp for one tile of LSH attention, for rows that are aligned to 16 bytes. `tile` is the
// number of instructions without dropout and without normalize_duplicates. Dropout adds `dropout`
// instructions. The option normalize_duplicates adds `multiplicities` instructions, and
// `multiplicities_per_round` instructions for each round.
struct LshInstructionCounts {
  InstructionCounts tile;
  int dropout, multiplicities, multiplicities_per_round;
};
// kLshQueryGradientAndDeltas also includes the pass that computes the deltas, which runs only if
// average_rounds is true.
inline constexpr LshInstructionCounts kLshResult{{891, 1165}, 131, 228, 388},
    kLshQueryGradient{{1167, 1611}, 112, 195, 388}, kLshQueryGradientAndDeltas{{2033, 2829}, 241, 385, 776},
    kLshKeyGradients{{1271, 1795}, 153, 198, 388};

}  // namespace tapeformer::cuda
