// Reshaping, slicing and joining. Results share storage with the input if the strides of the input allow
// this. All functions are differentiable.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Returns x if it is contiguous, otherwise a contiguous copy.
Tensor contiguous(const Tensor& x);
// Returns x converted to `dtype`. The gradient has the dtype of x. Throws ShapeError if x requires a
// gradient and `dtype` is not a floating dtype.
Tensor cast(const Tensor& x, DType dtype);
// Returns the same elements in row-major order with another shape. One size may be -1 and is inferred. Copies
// a tensor that is not contiguous.
Tensor reshape(const Tensor& x, Shape shape);
// Returns a view with permuted dimensions: dimension i of the result is dimension order[i] of x.
Tensor permute(const Tensor& x, const Shape& order);
// Returns a view with two dimensions swapped.
Tensor transpose(const Tensor& x, int dim0, int dim1);
// Returns elements [begin, end) of one dimension as a view. Negative indices count from the end.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end);
// Returns x with `before` zeros in front of the elements of one dimension, and `after` zeros behind them.
// Returns x itself if both numbers are 0.
Tensor pad(const Tensor& x, int dim, int64_t before, int64_t after);
// Divides a dimension of n elements into blocks of `size` elements. The dimension becomes two dimensions with
// the sizes (ceil(n / size), size). The last block is padded with zeros.
Tensor split_into_blocks(const Tensor& x, int dim, int64_t size);
// Concatenates tensors of equal rank along an existing dimension. If the parts are already adjacent in one
// storage, in the order of the result, returns a view.
Tensor concat(const std::vector<Tensor>& parts, int dim);
// Stacks tensors of equal shape along a new dimension.
Tensor stack(const std::vector<Tensor>& parts, int dim);
// Returns the slices x[…, i, …] along a dimension, without this dimension, as views.
std::vector<Tensor> unbind(const Tensor& x, int dim);

// Returns the shape of the tensor x for which unbind(x, dim) returns tensors with the shapes of `parts`.
Shape compute_stacked_shape(const std::vector<Tensor>& parts, int dim);
// Returns whether the tensors in `parts` are the slices of one contiguous tensor, in the order of unbind(…,
// dim).
bool are_slices_of_one_tensor(const std::vector<Tensor>& parts, int dim);

}  // namespace tapeformer
