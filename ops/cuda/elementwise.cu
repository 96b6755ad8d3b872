#include "ops/kernels/elementwise.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/feature_map_functions.h"

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
    gx[i] = g[i] * Function::template derivative<DeviceMath>(x[i], y[i]);
}

template <class Function, class T>
__global__ void binary_forward_kernel(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = Function::template value<DeviceMath>(a[i], b[i]);
}

template <class Function, class T>
__global__ void binary_backward_kernel(const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    if (ga) ga[i] = g[i] * Function::template derivative_a<DeviceMath>(a[i], b[i]);
    if (gb) gb[i] = g[i] * Function::template derivative_b<DeviceMath>(a[i], b[i]);
  }
}

template <class T>
__global__ void affine_kernel(const T* x, T scale, T offset, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = scale * x[i] + offset;
}

template <class T>
__global__ void dropout_kernel(const T* x, DropoutMultipliers<T> factors, T* y, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = x[i] * factors.multiplier(i);
}

}  // namespace

template <class Function, class T>
void unary_forward(Backend, const T* x, T* y, int64_t n) {
  launch(unary_forward_kernel<Function, T>, make_elementwise_launch(n), x, y, n);
}

template <class Function, class T>
void unary_backward(Backend, const T* g, const T* x, const T* y, T* gx, int64_t n) {
  launch(unary_backward_kernel<Function, T>, make_elementwise_launch(n), g, x, y, gx, n);
}

template <class Function, class T>
void binary_forward(Backend, const T* a, const T* b, T* y, int64_t n) {
  launch(binary_forward_kernel<Function, T>, make_elementwise_launch(n), a, b, y, n);
}

template <class Function, class T>
void binary_backward(Backend, const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n) {
  launch(binary_backward_kernel<Function, T>, make_elementwise_launch(n), g, a, b, ga, gb, n);
}

template <class T>
void affine(Backend, const T* x, T scale, T offset, T* y, int64_t n) {
  launch(affine_kernel<T>, make_elementwise_launch(n), x, scale, offset, y, n);
}

template <class T>
void dropout_forward(Backend, const T* x, const DropoutMask& mask, T* y, int64_t n) {
  launch(dropout_kernel<T>, make_elementwise_launch(n), x, DropoutMultipliers<T>(mask), y, n);
}

template <class T, class... Functions>
struct UnaryKernels {
  inline static const FunctionInstances all{&unary_forward<Functions, T>...,
                                            &unary_backward<Functions, T>...};
};
template <class T, class... Functions>
struct BinaryKernels {
  inline static const FunctionInstances all{&binary_forward<Functions, T>...,
                                            &binary_backward<Functions, T>...};
};
template <class T>
struct ElementwiseKernels {
  inline static const FunctionInstances all{&affine<T>, &dropout_forward<T>};
};
TAPEFORMER_FLOAT(
    template struct UnaryKernels<float, Negate, Exp, Log, Sqrt, Square, Relu, Gelu, Elu, EluPlusOne,
                                 SquaredRelu, Identity, Sigmoid, Silu, Tanh, Softplus>;
    template struct BinaryKernels<float, Add, Subtract, Multiply, Divide>;
    template struct ElementwiseKernels<float>;)
TAPEFORMER_DOUBLE(
    template struct UnaryKernels<double, Negate, Exp, Log, Sqrt, Square, Relu, Gelu, Elu, EluPlusOne,
                                 SquaredRelu, Identity, Sigmoid, Silu, Tanh, Softplus>;
    template struct BinaryKernels<double, Add, Subtract, Multiply, Divide>;
    template struct ElementwiseKernels<double>;)

}  // namespace tapeformer::cuda
