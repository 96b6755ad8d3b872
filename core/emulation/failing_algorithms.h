// Product algorithms of the emulated cuBLASLt that tests declare to be unsupported.
#pragma once

#include <array>

namespace tapeformer::cuda::emulation {

inline std::array<bool, 3> failing_algorithms = {};  // by the index of the algorithm

}  // namespace tapeformer::cuda::emulation
