// A dropout mask, as the probability and the random stream that reproduce it. Element i is kept if the 16
// random bits of element offset + i are at least round(p * 65536). Kept elements are divided by 1 - p.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/rng.h"

namespace tapeformer {

struct DropoutMask {
  double p = 0;  // probability of setting an element to zero; 0 disables dropout
  RandomStream stream;
  int64_t offset = 0;  // index in the stream of the first element of the tensor

  // Returns the mask of the part of the tensor that begins at element `elements`.
  DropoutMask from(int64_t elements) const { return {p, stream, offset + elements}; }
  TAPEFORMER_HOST_DEVICE bool active() const { return p > 0; }
  uint32_t threshold() const { return static_cast<uint32_t>(std::lround(p * 65536)); }
  TAPEFORMER_HOST_DEVICE double scale() const { return 1 / (1 - p); }
};

}  // namespace tapeformer
