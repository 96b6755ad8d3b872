// Gather and scatter by index.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns table[i], a row of table (rows, dim), for each element i of index (…). The result is (…, dim).
// The gradient of `table` is dense.
Tensor embedding(const Tensor& table, const Tensor& index);
// Returns a tensor (count, dim) whose row i is the sum of the rows of x (…, dim) for which `index` (…) is i.
// The op is the adjoint of embedding(). Rows with equal indices are added in their order.
Tensor scatter_rows(const Tensor& x, const Tensor& index, int64_t count);
// Returns the elements of x that `index` selects along dimension `dim`, in the shape of `index`. For
// example, if x has rank 3 and dim is 1, result[i, j, k] = x[i, index[i, j, k], k]. index has the rank of x,
// and the sizes of x in the other dimensions.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// Returns a copy of x with the elements of `source` added at `index`. The op is the adjoint of gather().
// Elements with equal indices are added in the order of `source`.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

// Returns a contiguous int64 copy of `index`, whose elements must be integers in [0, size).
//
// If `index` is on the CPU, the copy is on `device`, and the function throws ShapeError for an element out of
// range. If `index` is on another device, the copy is on that device, and the elements are not checked,
// because this would require synchronisation.
Tensor prepare_index(const char* op, const Tensor& index, int64_t size, Device device);

}  // namespace tapeformer
