// Weighted mean of row losses, computed on the device without a copy to the host.
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes weights (rows,): 1 / n for the n rows with a nonzero row_mask, and 0 for other rows. A null
    // mask selects all rows.
    template <class T> void row_weights(Backend, const uint8_t* row_mask, T* weights, int64_t rows);
    // Computes total (1,), the sum of values times weights over rows with a nonzero weight, in double.
    template <class T> void weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows);
    // Computes y = x times the scalar *factor.
    template <class T> void multiply_by(Backend, const T* x, const T* factor, T* y, int64_t n);

)

}  // namespace tapeformer
