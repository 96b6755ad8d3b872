// Kernels of the positions of the largest elements (ops/top_positions.h).
#pragma once

#include <cstdint>

#include "core/base/backends.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Finds the `count` largest elements of each row of x (rows, length), and writes their positions to
    // positions (rows, count) in increasing order. Among equal elements, elements with lower positions are
    // selected first. NaN counts as larger than all numbers.
    template <class T>
    void select_top_k(Backend, const T* x, int64_t rows, int64_t length, int64_t count, int64_t* positions);

)

}  // namespace tapeformer
