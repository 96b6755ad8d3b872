// Sums over dimensions, and broadcasting, which repeats elements along dimensions. The gradient of a sum is
// computed by broadcasting, and the gradient of broadcasting is computed by a sum. Sums of float32 are
// computed in float64, in an order that does not depend on the number of threads.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the sum of all elements, a tensor of shape ().
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
// Sums x to the shape `shape`, which must be broadcastable to the shape of x. The sum is over the leading
// dimensions that `shape` does not have, and over the dimensions whose size is 1 in `shape` but not in x.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Returns x repeated along dimensions of size 1 and along new leading dimensions, as a view. The gradient is
// the sum over these dimensions.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

}  // namespace tapeformer
