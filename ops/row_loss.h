// What losses over rows have in common, unrecorded. No number goes to the host.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// One over the number of rows that count where the row counts, else 0, as (rows,). mask (rows,) uint8, not 0
// where the row counts; undefined: all do. It may be on the CPU.
Tensor row_weights(const char* op, const Tensor& mask, int64_t rows, DType dtype, Device device);

// The sum of values times weights over rows whose weight is not 0, as a scalar. Both (rows,).
Tensor weighted_sum(const char* op, const Tensor& values, const Tensor& weights);

// x times a scalar tensor; x contiguous.
Tensor multiplied_by(const char* op, const Tensor& x, const Tensor& factor);

}  // namespace tapeformer
