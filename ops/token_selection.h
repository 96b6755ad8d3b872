// Selections of tokens, for attention within clusters. A selection (batch, heads, clusters, count) int64
// holds positions of tokens, in increasing order within a cluster. A token may be in several clusters.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the positions of the `count` largest elements of the last dimension of x (…, length), in increasing
// order of position; result (…, count) int64. Of equal elements, the first are selected. NaN is larger than
// other numbers. The result has no gradient. Throws ShapeError unless 1 <= count <= length and x is float32
// or float64.
Tensor top_positions(const Tensor& x, int64_t count);

// Returns the selected rows of x (batch, length, heads, dim), float32, float64 or bfloat16; result (batch,
// clusters, count, heads, dim). The positions must be in [0, length). Throws ShapeError for mismatched
// shapes.
Tensor gather_tokens(const Tensor& x, const Tensor& selection);
// Returns the mean of the rows of each token, or 0 for a token in no cluster. x is (batch, clusters, count,
// heads, dim), float32, float64 or bfloat16; result (batch, length, heads, dim).
Tensor scatter_mean_tokens(const Tensor& x, const Tensor& selection, int64_t length);

}  // namespace tapeformer
