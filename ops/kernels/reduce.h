// Kernels of reductions over the middle dimension of a contiguous array x (outer, size, inner).
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/base/host_device.h"

namespace tapeformer {

// Returns whether a is larger than b. NaN counts as larger than every number, as in PyTorch.
template <class T>
TAPEFORMER_HOST_DEVICE bool is_larger_or_nan(T a, T b) {
  return a > b || (a != a && b == b);
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (outer, inner), the sums over the middle dimension.
    template <class T>
    void sum_middle_dim(Backend, const T* x, T* out, int64_t outer, int64_t size, int64_t inner);
    // Computes out (outer, inner), the maxima over the middle dimension, and index (outer, inner), the
    // position of each maximum. Elements are compared by is_larger_or_nan(). If several elements are equal to
    // the maximum, the index is the position of the first one. `size` must be positive.
    template <class T> void max_middle_dim(Backend, const T* x, T* out, int64_t* index, int64_t outer,
                                           int64_t size, int64_t inner);
    // Computes the gradient of max_middle_dim(): sets gx[o, index[o, i], i] to g[o, i], and all other
    // elements of gx (outer, size, inner) to 0. `g` and `index` are (outer, inner).
    template <class T> void scatter_middle_dim(Backend, const T* g, const int64_t* index, T* gx,
                                               int64_t outer, int64_t size, int64_t inner);

)

}  // namespace tapeformer
