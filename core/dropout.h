// What dropout needs to draw the same mask again: a probability and a stream. Element i is kept when the 16
// random bits of element offset + i reach round(p * 65536), and kept elements are divided by 1 - p.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/rng.h"

namespace tapeformer {

struct DropoutMask {
  double p = 0;  // share of elements set to zero; 0 switches dropout off
  RandomStream stream;
  int64_t offset = 0;  // the stream's element of the tensor's first element: a tensor may be part of a larger

  // The mask of what begins `elements` further on.
  DropoutMask from(int64_t elements) const { return {p, stream, offset + elements}; }
  TAPEFORMER_HOST_DEVICE bool active() const { return p > 0; }
  uint32_t threshold() const { return static_cast<uint32_t>(std::lround(p * 65536)); }
  TAPEFORMER_HOST_DEVICE double scale() const { return 1 / (1 - p); }
};

}  // namespace tapeformer
