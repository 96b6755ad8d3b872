// Sums, means and maxima over dimensions. Sums of float32 are computed in float64, in an order that does not
// depend on the number of threads.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the sum of all elements, a tensor of shape ().
Tensor sum(const Tensor& x);
// Returns the sum over one dimension.
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
// Sums x to `shape`, over the dimensions in which broadcasting `shape` to the shape of x repeats elements.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Returns the arithmetic mean of all elements or over one dimension, or NaN if there are no elements.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keep_dim = false);
// Returns the largest element along one dimension, or NaN if the dimension holds NaN. If several elements are
// equal, the gradient goes to the first. Throws ShapeError if the dimension is empty.
Tensor max(const Tensor& x, int dim, bool keep_dim = false);
// Returns the int64 index of the first largest element of the last dimension, or of its first NaN. The result
// has no gradient.
Tensor argmax(const Tensor& x);

}  // namespace tapeformer
