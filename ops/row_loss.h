// Functions for losses that are a weighted sum of one value per row, such as the mean negative log-likelihood
// of the rows. The functions are not recorded for backward(), and do not wait for the device.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// Returns a tensor of weights with shape (rows,). `mask` is a uint8 tensor with shape (rows,) on any device.
// The n rows with a nonzero mask get the weight 1 / n, and the other rows get the weight 0. If the mask is
// undefined, all rows get the weight 1 / rows.
Tensor compute_row_weights(const char* op, const Tensor& mask, int64_t rows, DType dtype, Device device);

// Returns the sum of values * weights over the rows with nonzero weights, as a scalar. Both tensors have
// shape (rows,).
Tensor compute_weighted_sum(const char* op, const Tensor& values, const Tensor& weights);

// Returns x * factor. x must be contiguous, and `factor` must have one element.
Tensor multiply_by_scalar(const char* op, const Tensor& x, const Tensor& factor);

}  // namespace tapeformer
