// The positions of the largest elements.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the positions of the `count` largest elements of the last dimension of x, in increasing order of
// position. `x` has shape (…, length), and the result is an int64 tensor with shape (…, count). If several
// elements are equal, the first of these elements are selected. NaN is treated as larger than all numbers.
// The result has no gradient. Throws ShapeError unless 1 <= count <= length and x is float32 or float64.
Tensor select_top_positions(const Tensor& x, int64_t count);

}  // namespace tapeformer
