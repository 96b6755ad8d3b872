// Sums over dimensions, and broadcasting, which repeats elements along dimensions. Each op is the gradient of
// the other op. Sums of float32 are computed in float64, in an order that does not depend on the number of
// threads.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the sum of all elements, a tensor of shape ().
Tensor sum(const Tensor& x);
// Returns the sum over one dimension.
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
// Returns x summed to `shape`, which reverses broadcast_to(): sums over the dimensions of x in which `shape`
// has size 1 or no dimension.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Returns x repeated along dimensions of size 1 and along new leading dimensions, as a view. The gradient is
// the sum over these dimensions.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

}  // namespace tapeformer
