// Shared functions of losses over rows. The functions are not recorded and do not wait for the device.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// Returns weights (rows,): 1 / n for the n rows selected by the mask, and 0 for other rows. mask (rows,)
// uint8 selects rows with nonzero elements, and may be on the CPU. An undefined mask selects all rows.
Tensor compute_row_weights(const char* op, const Tensor& mask, int64_t rows, DType dtype, Device device);

// Returns the sum of values * weights over the rows with nonzero weights, as a scalar. Both tensors have
// shape (rows,).
Tensor compute_weighted_sum(const char* op, const Tensor& values, const Tensor& weights);

// Returns x * factor. x must be contiguous, and `factor` must have one element.
Tensor multiply_by_scalar(const char* op, const Tensor& x, const Tensor& factor);

}  // namespace tapeformer
