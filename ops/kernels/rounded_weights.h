// Weights that are rounded to bfloat16 once for several products.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/backends.h"
#include "core/dtype.h"

namespace tapeformer {

struct RoundedArray {
  const float* from;
  BFloat16* to;
  int64_t n;  // number of elements
};

namespace cuda {

// Rounds arrays to bfloat16.
void round_arrays(Backend, const RoundedArray* list, int64_t count);

// Rounded copies of arrays, keyed by the addresses of the arrays.
using RoundedCopies = std::unordered_map<const float*, const BFloat16*>;
// Copies that the linear layers of this thread use instead of rounding the arrays; null: none.
inline constinit thread_local const RoundedCopies* rounded_copies = nullptr;

}  // namespace cuda
}  // namespace tapeformer
