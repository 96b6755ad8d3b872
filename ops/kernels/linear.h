// Linear layers: y (rows, out) = dropout(activation(x (rows, in) wᵀ + bias)) with w (out, in), and bias
// (out,) or null.
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dropout.h"
#include "core/dtype.h"

namespace tapeformer {

enum class Activation { none, relu, gelu };  // gelu: the exact form, x Φ(x)

struct LinearShape {
  int64_t rows, in, out;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y. `pre`, (rows, out) or null, receives x wᵀ + bias. The gradient of gelu requires it; on a
    // device, gelu requires it in every case. X and Y are the same type; on CUDA devices X may be bfloat16
    // and Y bfloat16 or float32. The kernel rounds float32 operands of the products to bfloat16 if X is
    // bfloat16 or the precision of the device is bfloat16.
    template <class X, class Y>
    void linear_forward(Backend, const LinearShape& shape, const X* x, const Compute<X>* w,
                        const Compute<X>* bias, Activation activation, const DropoutMask& dropout, Y* pre,
                        Y* y);

    // Computes the gradients from g (rows, out). Each of gx (rows, in), gw (out, in) and gbias (out,) may be
    // null. relu reads `y`, and gelu reads `pre`.
    template <class X, class Y>
    void linear_backward(Backend, const LinearShape& shape, const Y* g, const X* x, const Compute<X>* w,
                         Activation activation, const DropoutMask& dropout, const Y* pre, const Y* y, X* gx,
                         Compute<X>* gw, Compute<X>* gbias);

)

namespace cpu {

// Return the number of elements of packed weights, and pack w, for repeated products with the same w.
template <class T>
int64_t packed_weight_size(const LinearShape& shape);
template <class T>
void pack_weight(const LinearShape& shape, const T* w, T* packed);
// Returns the minimum number of rows for which linear_forward_packed() is used.
int64_t min_packed_rows();
template <class T>
void linear_forward_packed(const LinearShape& shape, const T* x, const T* packed, const T* bias,
                           Activation activation, T* pre, T* y);

}  // namespace cpu
}  // namespace tapeformer
