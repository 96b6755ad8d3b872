// Dropout masks as arrays of multipliers, for vectorized loops.
#pragma once

#include <cstdint>

#include "core/dropout.h"

namespace tapeformer::cpu {

// Sets multipliers[i] to 0 or mask.scale() for element first + i of the tensor, i in [0, count).
template <class T>
void compute_dropout_multipliers(const DropoutMask& mask, int64_t first, int64_t count, T* multipliers);

}  // namespace tapeformer::cpu
