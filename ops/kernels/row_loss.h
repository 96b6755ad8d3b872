// Kernels that compute the mean of row losses on the device. The host reads no intermediate result.
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes weights (rows,). If n elements of row_mask (rows,) are nonzero, these rows have the weight 1 /
    // n, and other rows have the weight 0. A null row_mask selects all rows.
    template <class T> void compute_row_weights(Backend, const uint8_t* row_mask, T* weights, int64_t rows);
    // Computes total (1,), the sum of values[row] * weights[row] over the rows with a nonzero weight. Sums in
    // double.
    template <class T>
    void compute_weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows);
    // Computes y = *factor * x for n elements. `factor` points to device memory.
    template <class T> void multiply_by(Backend, const T* x, const T* factor, T* y, int64_t n);

)

}  // namespace tapeformer
