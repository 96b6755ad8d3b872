// Parts and repetitions of one dimension of a tensor. All functions are differentiable.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Returns consecutive parts of one dimension as views. Throws ShapeError unless the sum of `sizes` is the
// size of the dimension.
std::vector<Tensor> split(const Tensor& x, int dim, const std::vector<int64_t>& sizes);
// Divides a dimension of n elements into two dimensions with the sizes (n / size, size). Returns a view, also
// of a tensor that is not contiguous. Throws ShapeError unless `size` divides n.
Tensor unflatten(const Tensor& x, int dim, int64_t size);
// Returns x (…, n, …) with each element of a dimension repeated `count` times in a row, (…, count n, …). If
// `count` is 1, returns x itself.
Tensor repeat_interleave(const Tensor& x, int dim, int64_t count);

}  // namespace tapeformer
