// Rounding of float32 weights to bfloat16. A weight is rounded once, and several matrix products use the
// rounded copy.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/base/backends.h"
#include "core/base/dtype.h"

namespace tapeformer {

// A float32 array of n elements, and the bfloat16 array that receives the rounded elements.
struct RoundingTask {
  const float* source;
  BFloat16* target;
  int64_t n;
};

namespace cuda {

// Rounds `count` arrays to bfloat16. `list` is in host memory.
void round_arrays(Backend, const RoundingTask* list, int64_t count);

// Maps the address of a float32 weight to the address of its bfloat16 copy.
using RoundedCopies = std::unordered_map<const float*, const BFloat16*>;
// The rounded copies of weights that linear layers on this thread use. If null, linear layers round the
// weights in each call.
inline constinit thread_local const RoundedCopies* rounded_copies = nullptr;

}  // namespace cuda
}  // namespace tapeformer
