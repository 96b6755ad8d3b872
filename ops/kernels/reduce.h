// Reductions of the middle dimension of a contiguous (outer, size, inner) array.
#pragma once

#include <cstdint>

#include "ops/kernels/machines.h"

namespace tapeformer {

TAPEFORMER_ON_BOTH_MACHINES(

    // out (outer, inner)
    template <class T> void sum_middle(const T* x, T* out, int64_t outer, int64_t size, int64_t inner);
    // out and index (outer, inner); the first of equal elements wins; size > 0
    template <class T>
    void max_middle(const T* x, T* out, int64_t* index, int64_t outer, int64_t size, int64_t inner);
    // gx (outer, size, inner) = g (outer, inner) at the index, else 0
    template <class T>
    void scatter_middle(const T* g, const int64_t* index, T* gx, int64_t outer, int64_t size, int64_t inner);

)

}  // namespace tapeformer
