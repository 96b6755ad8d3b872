#include "core/cpu/vector_math.h"

namespace tapeformer::vmath::detail {

const float kExpLow = -104.0f;
const float kExpHigh = 89.0f;

}  // namespace tapeformer::vmath::detail
