// Functions of rows computed a few rows at a time, forward and backward, so that their intermediates never
// exist for all rows at once (Kitaev et al. 2020, "Reformer", section 3, "chunking").
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Calls f(first, last) for `chunks` ranges of nearly equal size that cover [0, rows); as many as there are
// rows when fewer, and at least one.
template <class F>
void for_each_chunk(int64_t rows, int64_t chunks, F&& f) {
  const int64_t count = std::max<int64_t>(std::min(chunks, rows), 1);
  for (int64_t i = 0; i < count; ++i) f(rows * i / count, rows * (i + 1) / count);
}

// Rows [first, last) of a tensor, as an unrecorded view.
Tensor rows_of(const Tensor& x, int64_t first, int64_t last);

// Maps rows, which begin at row `first` of the whole, to as many rows.
using RowsFunction = std::function<Tensor(const Tensor& rows, int64_t first)>;

// function(x[first … last], first) for every chunk, joined; recorded as one node that keeps x only and runs
// the function again in backward(), chunk after chunk. x (rows, …); each result row depends on its own row
// only, and the function is pure like a recomputed segment (autograd/recompute.h). `parameters` are the
// leaves that it uses; their gradients are accumulated during the replay. What a replay returns is not looked
// at: `replayed`, when given, is run there instead and may leave out what only the result needs, if it has
// the function's gradient.
Tensor chunked(const RowsFunction& function, const Tensor& x, int64_t chunks,
               const std::vector<Tensor>& parameters, const RowsFunction& replayed = {});

// The sum over all chunks of function(x[first … last], parameters, first), which are scalars: a loss. One
// node, and no replay: the gradients of a scalar are known up to a factor, so each chunk's are computed
// together with its value when recording is on. The function uses the parameters that it is given, not the
// caller's own. multiply(y, factor), unrecorded, is y times a scalar; on a device no number goes to the host.
Tensor chunked_sum(const std::function<Tensor(const Tensor& rows, const std::vector<Tensor>& parameters,
                                              int64_t first)>& function,
                   const Tensor& x, int64_t chunks, const std::vector<Tensor>& parameters,
                   const std::function<Tensor(const Tensor& y, const Tensor& factor)>& multiply);

}  // namespace tapeformer
