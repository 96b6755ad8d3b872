// Reshaping, slicing and joining. Results share storage with the input if its strides allow. All functions
// are differentiable.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Returns x if it is contiguous, otherwise a contiguous copy.
Tensor contiguous(const Tensor& x);
// Converts to another floating dtype. The gradient has the dtype of the input.
Tensor cast(const Tensor& x, DType dtype);
// Returns the same elements in row-major order with another shape. One size may be -1 and is inferred. Copies
// a tensor that is not contiguous.
Tensor reshape(const Tensor& x, Shape shape);
// Permutes the dimensions: dimension i of the result is dimension order[i] of x. A view.
Tensor permute(const Tensor& x, const Shape& order);
// Exchanges two dimensions. A view.
Tensor transpose(const Tensor& x, int dim0, int dim1);
// Returns elements [begin, end) of one dimension. Negative indices count from the end. A view.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end);
// Joins tensors of equal rank along an existing dimension.
Tensor concat(const std::vector<Tensor>& parts, int dim);
// Joins tensors of equal shape along a new dimension.
Tensor stack(const std::vector<Tensor>& parts, int dim);

}  // namespace tapeformer
