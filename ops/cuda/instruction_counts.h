// Instructions that a warp executes in the attention kernels for bfloat16 tensors on tensor cores, for the
// estimates of WorkLog. The numbers are counts of instructions in machine code for sm_90a (nvcc 13.0), times
// the repetitions of inner loops. docs/device-cost.md explains how they are counted.
#pragma once

#include <cstdint>

namespace tapeformer::cuda {

// Instructions of a warp for rows of at most 32 elements and for rows of at most 64 elements.
struct InstructionCounts {
  int narrow, wide;

  constexpr int count(int width) const { return width > 32 ? wide : narrow; }
};

// Per chunk of kTileTokens tokens, with the feature map elu + 1.
inline constexpr InstructionCounts kLinearResult{941, 1643}, kLinearQueryGradient{1852, 3368},
    kLinearKeyValueGradients{1612, 2873}, kLinearState{270, 522};
// Per tile of kTileTokens queries and kTileTokens keys without masked pairs.
inline constexpr InstructionCounts kSoftmaxResult{410, 508}, kSoftmaxQueryGradient{359, 462},
    kSoftmaxKeyValueGradients{519, 657};
inline constexpr int kDropoutMask = 700;  // in addition, per tile with dropout

}  // namespace tapeformer::cuda
