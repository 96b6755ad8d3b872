// Conversions of rows between float and BFloat16.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tapeformer::cpu {

// Converts `count` elements to float, which is exact.
void widen(const BFloat16* source, int64_t count, float* target);

// Converts `count` elements to BFloat16. Equals the constructor of BFloat16 for each element.
void narrow(const float* source, int64_t count, BFloat16* target);

}  // namespace tapeformer::cpu
