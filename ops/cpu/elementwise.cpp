#include "ops/kernels/elementwise.h"

#include <algorithm>

#include "core/base/instances.h"
#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/feature_map_functions.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // minimum number of elements per thread

}  // namespace

template <class Function, class T>
void unary_forward(Backend, const T* x, T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = Function::template value<VectorMath>(x[i]);
  });
}

template <class Function, class T>
void unary_backward(Backend, const T* g, const T* x, const T* y, T* gx, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      gx[i] = g[i] * Function::template derivative<VectorMath>(x[i], y[i]);
  });
}

template <class Function, class T>
void binary_forward(Backend, const T* a, const T* b, T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = Function::template value<VectorMath>(a[i], b[i]);
  });
}

template <class Function, class T>
void binary_backward(Backend, const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    if (ga) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i)
        ga[i] = g[i] * Function::template derivative_a<VectorMath>(a[i], b[i]);
    }
    if (gb) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i)
        gb[i] = g[i] * Function::template derivative_b<VectorMath>(a[i], b[i]);
    }
  });
}

template <class T>
void affine(Backend, const T* x, T scale, T offset, T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = scale * x[i] + offset;
  });
}

template <class T>
void dropout_forward(Backend, const T* x, const DropoutMask& mask, T* y, int64_t n) {
  constexpr int64_t kPiece = 1024;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    T multipliers[kPiece];
    for (int64_t first = begin; first < end; first += kPiece) {
      const int64_t count = std::min(kPiece, end - first);
      compute_dropout_multipliers(mask, first, count, multipliers);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) y[first + i] = x[first + i] * multipliers[i];
    }
  });
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
template struct UnaryKernels<float, Negate, Exp, Log, Sqrt, Square, Relu, Gelu, Elu, EluPlusOne, SquaredRelu,
                             Identity, Sigmoid, Silu, Tanh, Softplus>;
template struct BinaryKernels<float, Add, Subtract, Multiply, Divide>;
template struct ElementwiseKernels<float>;
template struct UnaryKernels<double, Negate, Exp, Log, Sqrt, Square, Relu, Gelu, Elu, EluPlusOne, SquaredRelu,
                             Identity, Sigmoid, Silu, Tanh, Softplus>;
template struct BinaryKernels<double, Add, Subtract, Multiply, Divide>;
template struct ElementwiseKernels<double>;

}  // namespace tapeformer::cpu
