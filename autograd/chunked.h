// Computation of functions in chunks of rows. In the forward and the backward pass, the intermediate results
// of only one chunk exist at a time (Kitaev et al. 2020, "Reformer", section 3, "chunking").
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Splits [0, row_count) into chunk_count ranges of nearly equal size, and calls f(first, last) for each
// range. If chunk_count is greater than row_count, there are row_count ranges. If row_count is 0, there is
// one empty range.
template <class F>
void for_each_chunk(int64_t row_count, int64_t chunk_count, F&& f) {
  const int64_t count = std::max<int64_t>(std::min(chunk_count, row_count), 1);
  for (int64_t i = 0; i < count; ++i) f(row_count * i / count, row_count * (i + 1) / count);
}

// Returns a view of rows [first, last) of a tensor. The view is not recorded on the tape.
Tensor view_rows(const Tensor& x, int64_t first, int64_t last);

// A function of consecutive rows of a tensor. `first` is the index of the first of these rows in the tensor.
// The result has the same number of rows as `rows`.
using RowsFunction = std::function<Tensor(const Tensor& rows, int64_t first)>;

// The backward pass of a RowsFunction. `g` is the gradient of the result of the RowsFunction. A RowsGradient
// accumulates the gradients of the parameters that the RowsFunction uses. If `rows` requires a gradient, a
// RowsGradient also accumulates gradient(rows).
using RowsGradient = std::function<void(const Tensor& rows, int64_t first, const Tensor& g)>;

// Computes function(view_rows(x, first, last), first) for each chunk and concatenates the results. `x` is a
// contiguous tensor of shape (rows, …). Each row of the result must depend only on the same row of `x`.
// `function` must return the same result if backward() calls it again with the same rows.
//
// The call is recorded as one node that keeps only `x`. backward() replays `function` chunk by chunk and
// accumulates the gradients of `parameters`, which are the leaves that `function` uses. If `rows_gradient`
// is given, backward() calls `rows_gradient` instead of replaying `function`.
Tensor compute_in_chunks(const RowsFunction& function, const Tensor& x, int64_t chunks,
                         const std::vector<Tensor>& parameters, const RowsGradient& rows_gradient = {});

// Returns the sum over all chunks of the scalar function(view_rows(x, first, last), parameters, first), such
// as a loss. `x` is a contiguous tensor of shape (rows, …). `function` must use the parameters that are
// passed to it instead of the original tensors.
//
// The call is recorded as one node. If recording is on, the forward pass also computes the gradients of the
// sum with respect to `x` and `parameters`, one chunk at a time. backward() does not replay `function`. It
// calls multiply(y, factor) to multiply each of these gradients y by the gradient of the sum, the scalar
// tensor `factor`.
Tensor sum_in_chunks(const std::function<Tensor(const Tensor& rows, const std::vector<Tensor>& parameters,
                                                int64_t first)>& function,
                     const Tensor& x, int64_t chunks, const std::vector<Tensor>& parameters,
                     const std::function<Tensor(const Tensor& y, const Tensor& factor)>& multiply);

}  // namespace tapeformer
