// Elementwise kernels, one instance per function object. A unary function object has value(x) and slope(x,
// y), the derivative at x where y = value(x); a binary one has value(a, b) and the partial derivatives
// slope_a and slope_b.
#pragma once

#include <cstdint>

#include "core/dropout.h"

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

namespace cpu {

template <class Function, class T>
void unary_forward(const T* x, T* y, int64_t n);
template <class Function, class T>
void unary_backward(const T* g, const T* x, const T* y, T* gx, int64_t n);
template <class Function, class T>
void binary_forward(const T* a, const T* b, T* y, int64_t n);
// ga and gb may be null.
template <class Function, class T>
void binary_backward(const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n);
// y = scale x + offset
template <class T>
void affine(const T* x, T scale, T offset, T* y, int64_t n);
template <class T>
void dropout_forward(const T* x, const DropoutMask& mask, T* y, int64_t n);

}  // namespace cpu
}  // namespace tapeformer
