// Elementwise kernels on contiguous arrays of n elements. The template parameter Function is a function
// object of ops/kernels/elementwise_functions.h or ops/kernels/feature_map_functions.h.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/random/dropout.h"

namespace tapeformer {

struct Negate;
struct Exp;
struct Log;
struct Sqrt;
struct Square;
struct Relu;
struct Gelu;
struct Elu;
struct EluPlusOne;
struct SquaredRelu;
struct Identity;
struct Sigmoid;
struct Silu;
struct Tanh;
struct Softplus;
struct Add;
struct Subtract;
struct Multiply;
struct Divide;

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y = Function::value(x).
    template <class Function, class T> void unary_forward(Backend, const T* x, T* y, int64_t n);
    // Computes gx = g * Function::derivative(x, y).
    template <class Function, class T>
    void unary_backward(Backend, const T* g, const T* x, const T* y, T* gx, int64_t n);
    // Computes y = Function::value(a, b).
    template <class Function, class T> void binary_forward(Backend, const T* a, const T* b, T* y, int64_t n);
    // Computes ga and gb, the gradients of a and b, from the gradient g of y. ga or gb may be null.
    template <class Function, class T>
    void binary_backward(Backend, const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n);
    // Computes y = scale x + offset.
    template <class T> void affine(Backend, const T* x, T scale, T offset, T* y, int64_t n);
    // Computes y = dropout(x). Kernels compute the multiplier of each element from the random stream of
    // `mask`, and do not store the multipliers.
    template <class T> void dropout_forward(Backend, const T* x, const DropoutMask& mask, T* y, int64_t n);

)

}  // namespace tapeformer
