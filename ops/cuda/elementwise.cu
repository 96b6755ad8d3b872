#include "ops/kernels/elementwise.h"

#include "core/cuda/kernel.h"
#include "ops/kernels/elementwise_functions.h"

namespace tapeformer::cuda {
namespace {

template <class Function, class T>
__global__ void unary_forward_kernel(const T* x, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = Function::template value<DeviceMath>(x[i]);
}

template <class Function, class T>
__global__ void unary_backward_kernel(const T* g, const T* x, const T* y, T* gx, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    gx[i] = g[i] * Function::template slope<DeviceMath>(x[i], y[i]);
}

template <class Function, class T>
__global__ void binary_forward_kernel(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = Function::template value<DeviceMath>(a[i], b[i]);
}

template <class Function, class T>
__global__ void binary_backward_kernel(const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    if (ga) ga[i] = g[i] * Function::template slope_a<DeviceMath>(a[i], b[i]);
    if (gb) gb[i] = g[i] * Function::template slope_b<DeviceMath>(a[i], b[i]);
  }
}

template <class T>
__global__ void affine_kernel(const T* x, T scale, T offset, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = scale * x[i] + offset;
}

template <class T>
__global__ void dropout_kernel(const T* x, DropoutFactors<T> factors, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = x[i] * factors.of(i);
}

}  // namespace

template <class Function, class T>
void unary_forward(const T* x, T* y, int64_t n) {
  launch(unary_forward_kernel<Function, T>, over_elements(n), x, y, n);
}

template <class Function, class T>
void unary_backward(const T* g, const T* x, const T* y, T* gx, int64_t n) {
  launch(unary_backward_kernel<Function, T>, over_elements(n), g, x, y, gx, n);
}

template <class Function, class T>
void binary_forward(const T* a, const T* b, T* y, int64_t n) {
  launch(binary_forward_kernel<Function, T>, over_elements(n), a, b, y, n);
}

template <class Function, class T>
void binary_backward(const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n) {
  launch(binary_backward_kernel<Function, T>, over_elements(n), g, a, b, ga, gb, n);
}

template <class T>
void affine(const T* x, T scale, T offset, T* y, int64_t n) {
  launch(affine_kernel<T>, over_elements(n), x, scale, offset, y, n);
}

template <class T>
void dropout_forward(const T* x, const DropoutMask& mask, T* y, int64_t n) {
  launch(dropout_kernel<T>, over_elements(n), x, DropoutFactors<T>(mask), y, n);
}

#define TAPEFORMER_UNARY(Function, T)                           \
  template void unary_forward<Function>(const T*, T*, int64_t); \
  template void unary_backward<Function>(const T*, const T*, const T*, T*, int64_t);
#define TAPEFORMER_BINARY(Function, T)                                     \
  template void binary_forward<Function>(const T*, const T*, T*, int64_t); \
  template void binary_backward<Function>(const T*, const T*, const T*, T*, T*, int64_t);
#define TAPEFORMER_ELEMENTWISE(T)                    \
  TAPEFORMER_UNARY(Negate, T)                        \
  TAPEFORMER_UNARY(Exp, T)                           \
  TAPEFORMER_UNARY(Log, T)                           \
  TAPEFORMER_UNARY(Sqrt, T)                          \
  TAPEFORMER_UNARY(Square, T)                        \
  TAPEFORMER_UNARY(Relu, T)                          \
  TAPEFORMER_UNARY(Gelu, T)                          \
  TAPEFORMER_UNARY(Elu, T)                           \
  TAPEFORMER_UNARY(Sigmoid, T)                       \
  TAPEFORMER_UNARY(Tanh, T)                          \
  TAPEFORMER_UNARY(Softplus, T)                      \
  TAPEFORMER_BINARY(Add, T)                          \
  TAPEFORMER_BINARY(Subtract, T)                     \
  TAPEFORMER_BINARY(Multiply, T)                     \
  TAPEFORMER_BINARY(Divide, T)                       \
  template void affine(const T*, T, T, T*, int64_t); \
  template void dropout_forward(const T*, const DropoutMask&, T*, int64_t);

// Macros, because explicit instantiation of a list has no other form.
TAPEFORMER_FLOAT(TAPEFORMER_ELEMENTWISE(float))
TAPEFORMER_DOUBLE(TAPEFORMER_ELEMENTWISE(double))
#undef TAPEFORMER_UNARY
#undef TAPEFORMER_BINARY
#undef TAPEFORMER_ELEMENTWISE

}  // namespace tapeformer::cuda
