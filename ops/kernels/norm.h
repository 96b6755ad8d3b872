// Kernels of layer normalisation. The input is x (rows, dim), or x + dropout(branch), where `branch` (rows,
// dim) is the result of a residual branch.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/base/dtype.h"
#include "core/random/dropout.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y = normalized * weight + bias, where normalized = (s - mean(s)) / sqrt(var(s) + eps) for each
    // row s of the input. If `branch` is null, the input is x. B is T, or B is bfloat16 and T is float.
    //
    // Writes the normalized rows to `normalized` (rows, dim) and 1 / sqrt(var(s) + eps) to inverse_std
    // (rows,), for layer_norm_backward(). Writes y, rounded to bfloat16, to rounded_y (rows, dim).
    // `normalized`, inverse_std and rounded_y can be null.
    template <class T, class B>
    void layer_norm_forward(Backend, int64_t rows, int64_t dim, const T* x, const B* branch,
                            const DropoutMask& dropout, const T* weight, const T* bias, double eps, T* y,
                            T* normalized, T* inverse_std, BFloat16* rounded_y);

    // Computes the gradients of x, branch, weight (dim,) and bias (dim,). `g` is the gradient of y, and
    // g_rounded is the gradient of rounded_y. Either g or g_rounded can be null. gbranch, gweight and gbias
    // can also be null.
    template <class T, class B>
    void layer_norm_backward(Backend, int64_t rows, int64_t dim, const T* g, const BFloat16* g_rounded,
                             const T* normalized, const T* inverse_std, const T* weight,
                             const DropoutMask& dropout, T* gx, B* gbranch, T* gweight, T* gbias);

)

}  // namespace tapeformer
