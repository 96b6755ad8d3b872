// Reading and adding rows by index.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Rows of table (rows, dim) by integer index (…): result (…, dim). The gradient adds into a dense table.
Tensor embedding(const Tensor& table, const Tensor& index);
// result[i…] = x[…, index[i…], …] along one dimension: index has x's rank, and x's sizes in the other
// dimensions.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// A copy of x with source added at the index, the inverse of gather; equal indices add up in order.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

// Contiguous int64 copy of an integer index whose elements all lie in [0, size). Errors: ShapeError naming
// the first element out of range and its place.
Tensor checked_index(const char* op, const Tensor& index, int64_t size);

}  // namespace tapeformer
