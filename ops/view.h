// Reshaping, slicing and joining. Views share storage wherever strides allow; gradients flow through them.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// The tensor itself when contiguous, else a contiguous copy.
Tensor contiguous(const Tensor& x);
// Another floating dtype; the gradient comes back in the input's.
Tensor cast(const Tensor& x, DType dtype);
// Same elements in row-major order under another shape; one size may be -1 (inferred). Copies when not
// contiguous.
Tensor reshape(const Tensor& x, Shape shape);
// Dimensions in a new order: result dimension i is dimension order[i] of x. A view.
Tensor permute(const Tensor& x, const Shape& order);
// Two dimensions exchanged. A view.
Tensor transpose(const Tensor& x, int dim0, int dim1);
// Elements [begin, end) of one dimension; negative ends count from the back. A view.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end);
// The tensor repeated along dimensions of size 1 (and new leading ones) without copying. Its gradient is the
// one sum that undoes broadcasting; all other ops see equal shapes.
Tensor broadcast_to(const Tensor& x, const Shape& shape);
// Tensors of equal rank joined along an existing dimension.
Tensor concat(const std::vector<Tensor>& parts, int dim);
// Tensors of equal shape joined along a new dimension.
Tensor stack(const std::vector<Tensor>& parts, int dim);

}  // namespace tapeformer
