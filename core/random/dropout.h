// A dropout mask. The mask is not stored in memory. Kernels recompute the mask from the probability `p` and
// the random stream `stream`. Element i is kept if stream.bits16(offset + i) is at least round(p * 65536).
// Kept elements are divided by 1 - p.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random/rng.h"

namespace tapeformer {

struct DropoutMask {
  double p = 0;  // probability of setting an element to zero; 0 disables dropout
  RandomStream stream;
  int64_t offset = 0;  // index of the tensor's first element in the stream

  // Returns the mask of the part of the tensor that begins at the element with the index `element`.
  DropoutMask at_offset(int64_t element) const { return {p, stream, offset + element}; }
  TAPEFORMER_HOST_DEVICE bool is_active() const { return p > 0; }
  uint32_t threshold() const { return static_cast<uint32_t>(std::lround(p * 65536)); }
  TAPEFORMER_HOST_DEVICE double scale() const { return 1 / (1 - p); }
};

}  // namespace tapeformer
