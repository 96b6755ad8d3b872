// Sums, means and maxima over dimensions. Sums of float32 are computed in float64, in an order that does not
// depend on the number of threads.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Return the sum of all elements with shape (), of one dimension, or of the dimensions that broadcasting from
// `shape` added.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
Tensor sum_to(const Tensor& x, const Shape& shape);
// Return the arithmetic mean, or NaN for no elements.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keep_dim = false);
// Returns the largest element of one dimension, or NaN if the dimension holds NaN. The gradient goes to the
// first of equal elements. Throws ShapeError if the dimension is empty.
Tensor max(const Tensor& x, int dim, bool keep_dim = false);
// Returns the int64 index of the first largest element of the last dimension, or of its first NaN. The result
// has no gradient.
Tensor argmax(const Tensor& x);

}  // namespace tapeformer
