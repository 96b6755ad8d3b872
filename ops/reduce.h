// Sums, means and maxima over dimensions.
#pragma once

#include "ops/sum.h"

namespace tapeformer {

// Returns the arithmetic mean of all elements or over one dimension, or NaN if there are no elements.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keep_dim = false);
// Returns the largest element along one dimension, or NaN if the dimension contains NaN. If the dimension
// contains the largest element several times, only its first occurrence receives the gradient. Throws
// ArgumentError if the dimension is empty.
Tensor max(const Tensor& x, int dim, bool keep_dim = false);
// Returns the int64 index of the largest element along the last dimension. If several elements are equal,
// this is the index of the first one. If the dimension holds NaN, this is the index of the first NaN. The
// result has no gradient.
Tensor argmax(const Tensor& x);

}  // namespace tapeformer
