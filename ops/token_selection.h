// Selections of tokens, for attention within clusters. A selection is an int64 tensor (batch, heads,
// clusters, count) with the positions of the tokens of each cluster, in increasing order. A token can be in
// several clusters.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the positions of the `count` largest elements of the last dimension of x, in increasing order of
// position. `x` has shape (…, length), and the result is an int64 tensor with shape (…, count). If several
// elements are equal, the first of these elements are selected. NaN is treated as larger than all numbers.
// The result has no gradient. Throws ShapeError unless 1 <= count <= length and x is float32 or float64.
Tensor select_top_positions(const Tensor& x, int64_t count);

// Returns the rows of x at the selected positions. `x` has shape (batch, length, heads, dim) and dtype
// float32, float64 or bfloat16. The result has shape (batch, clusters, count, heads, dim). The positions must
// be in [0, length). Throws ShapeError for mismatched shapes.
Tensor gather_tokens(const Tensor& x, const Tensor& selection);

// For each token, returns the mean of the rows of x that belong to the token, or 0 if no row belongs to the
// token. The row x[b, c, n, h] belongs to the token at position selection[b, h, c, n], which must be in [0,
// length). `x` has shape (batch, clusters, count, heads, dim) and dtype float32, float64 or bfloat16. The
// result has shape (batch, length, heads, dim). Throws ShapeError for mismatched shapes.
Tensor scatter_mean_tokens(const Tensor& x, const Tensor& selection, int64_t length);

}  // namespace tapeformer
