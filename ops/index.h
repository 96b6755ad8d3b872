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

// Contiguous int64 copy on `device` of an integer index into [0, size). Errors: ShapeError naming the first
// element out of range and its place, for an index that comes from the CPU. One that is on the device already
// is not looked at, which would wait for the device: there a kernel makes NaN of what is out of range.
Tensor checked_index(const char* op, const Tensor& index, int64_t size, Device device);

}  // namespace tapeformer
