// Sums, means and maxima over dimensions. float32 sums run in float64, in an order that does not depend on
// threads.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Sum of all elements, shape (); of one dimension, dropped or kept as size 1; of the dimensions that
// broadcasting added.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, int dim, bool keep_dim = false);
Tensor sum_to(const Tensor& x, const Shape& shape);
// Arithmetic mean; NaN for no elements.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keep_dim = false);
// Largest element of one dimension, NaN if there is one; its gradient goes to the first of equal elements.
// The dimension must not be empty.
Tensor max(const Tensor& x, int dim, bool keep_dim = false);
// int64 index of the first largest element of the last dimension, or of its first NaN; has no gradient.
Tensor argmax(const Tensor& x);

}  // namespace tapeformer
