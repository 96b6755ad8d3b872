// Elementwise kernels, one instance per function object of ops/kernels/elementwise_functions.h.
#pragma once

#include <cstdint>

#include "core/dropout.h"
#include "ops/kernels/machines.h"

namespace tapeformer {

struct Negate;
struct Exp;
struct Log;
struct Sqrt;
struct Square;
struct Relu;
struct Gelu;
struct Elu;
struct Sigmoid;
struct Tanh;
struct Softplus;
struct Add;
struct Subtract;
struct Multiply;
struct Divide;

TAPEFORMER_ON_BOTH_MACHINES(

    template <class Function, class T> void unary_forward(const T* x, T* y, int64_t n);
    template <class Function, class T>
    void unary_backward(const T* g, const T* x, const T* y, T* gx, int64_t n);
    template <class Function, class T> void binary_forward(const T* a, const T* b, T* y, int64_t n);
    // ga and gb may be null.
    template <class Function, class T>
    void binary_backward(const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n);
    // y = scale x + offset
    template <class T> void affine(const T* x, T scale, T offset, T* y, int64_t n);
    template <class T> void dropout_forward(const T* x, const DropoutMask& mask, T* y, int64_t n);

)

}  // namespace tapeformer
