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

// The backward pass of a RowsFunction. `g` is the gradient of the result of the RowsFunction. Accumulates the
// gradients of the parameters that the RowsFunction uses. If `rows` requires a gradient, also accumulates the
// gradient of `rows`.
using RowsGradient = std::function<void(const Tensor& rows, int64_t first, const Tensor& g)>;

// Splits the rows of `x` into `chunks` chunks, calls `function` for each chunk, and concatenates the results.
// `x` is a contiguous tensor of shape (rows, …). Each row of the result must depend only on the same row of
// `x`. If `function` is called again with the same rows, it must return the same result.
//
// The call is recorded as one node that keeps only `x`. backward() calls `function` again for each chunk, and
// accumulates the gradients of `parameters`. `parameters` are the leaves that `function` uses. If
// `rows_gradient` is given, backward() calls `rows_gradient` instead of `function`.
Tensor compute_in_chunks(const RowsFunction& function, const Tensor& x, int64_t chunks,
                         const std::vector<Tensor>& parameters, const RowsGradient& rows_gradient = {});

// Splits the rows of `x` into `chunks` chunks, calls `function` for each chunk, and returns the sum of the
// results. Each result is a scalar, such as a loss. `x` is a contiguous tensor of shape (rows, …). `function`
// receives the index in `x` of the first row of the chunk as `first`. `function` must use the parameters that
// are passed to it instead of the original tensors.
//
// The call is recorded as one node. If recording is on, the forward pass also computes the gradients of the
// sum with respect to `x` and `parameters`, one chunk at a time. backward() does not call `function` again.
// backward() multiplies each gradient from the forward pass by the gradient of the sum, unless the gradient
// of the sum is known to be 1. Each product is computed by multiply(y, factor), which must return y * factor.
// `y` is a gradient from the forward pass, and `factor` is the gradient of the sum, a scalar tensor.
Tensor sum_in_chunks(const std::function<Tensor(const Tensor& rows, const std::vector<Tensor>& parameters,
                                                int64_t first)>& function,
                     const Tensor& x, int64_t chunks, const std::vector<Tensor>& parameters,
                     const std::function<Tensor(const Tensor& y, const Tensor& factor)>& multiply);

}  // namespace tapeformer
