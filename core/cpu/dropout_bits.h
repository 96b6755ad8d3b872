// Dropout masks as arrays of multipliers, for vectorized loops.
#pragma once

#include <cstdint>

#include "core/random/dropout.h"

namespace tapeformer::cpu {

// Writes the multipliers of `count` consecutive elements of a tensor, beginning with the element with index
// `first`. The multiplier is mask.scale() if the mask keeps the element, otherwise 0.
template <class T>
void compute_dropout_multipliers(const DropoutMask& mask, int64_t first, int64_t count, T* multipliers);

}  // namespace tapeformer::cpu
