// Layer normalisation of the rows of x (rows, dim), or of x + dropout(branch).
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dropout.h"
#include "core/dtype.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y = normalized * weight + bias, where `normalized` is x or x + dropout(branch), minus the mean
    // and divided by the standard deviation of the row. `branch` may be null. `normalized` (rows, dim) and
    // `inverse_std` (rows,) are inputs of layer_norm_backward; both may be null. B is T, or bfloat16 if T is
    // float. If `rounded` is not null, also writes y in bfloat16 to it.
    template <class T, class B>
    void layer_norm_forward(Backend, int64_t rows, int64_t dim, const T* x, const B* branch,
                            const DropoutMask& dropout, const T* weight, const T* bias, double eps, T* y,
                            T* normalized, T* inverse_std, BFloat16* rounded);

    // Computes the gradients of x, branch, weight and bias from g + g_rounded, the gradients of y and of
    // `rounded`, one of which may be null. gbranch is the gradient of the branch before dropout. gbranch,
    // gweight (dim,) and gbias (dim,) may be null.
    template <class T, class B>
    void layer_norm_backward(Backend, int64_t rows, int64_t dim, const T* g, const BFloat16* g_rounded,
                             const T* normalized, const T* inverse_std, const T* weight,
                             const DropoutMask& dropout, T* gx, B* gbranch, T* gweight, T* gbias);

)

}  // namespace tapeformer
