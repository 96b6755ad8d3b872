// Kernels that compute the mean loss of the unmasked rows on the device, so that the host does not wait for
// intermediate results.
#pragma once

#include <cstdint>

#include "core/base/backends.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes weights (rows,). A row with a nonzero element in row_mask (rows,) has the weight 1 / n, where
    // n is the number of such rows. Other rows have the weight 0. If row_mask is null, each row has the
    // weight 1 / rows.
    template <class T> void compute_row_weights(Backend, const uint8_t* row_mask, T* weights, int64_t rows);
    // Computes total (1,), the sum of values[row] * weights[row] over the rows with a nonzero weight. The sum
    // is computed in double precision.
    template <class T>
    void compute_weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows);
    // Computes y = *factor * x for n elements. `factor` is on the same device as x.
    template <class T> void multiply_by_device_scalar(Backend, const T* x, const T* factor, T* y, int64_t n);

)

}  // namespace tapeformer
