// From the losses of rows to that of a batch, without bringing a number to the host.
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // weights (rows,): one over the number of counted rows where counted[row] is not 0, else 0. Null counts
    // all.
    template <class T> void row_weights(Backend, const uint8_t* counted, T* weights, int64_t rows);
    // total (1,): the sum of values times weights over rows whose weight is not 0, made in double.
    template <class T> void weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows);
    // y = x times the one element of factor
    template <class T> void multiply_by(Backend, const T* x, const T* factor, T* y, int64_t n);

)

}  // namespace tapeformer
