#include "ops/kernels/elementwise.h"

#include <algorithm>

#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/threads.h"
#include "ops/kernels/elementwise_functions.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

}  // namespace

template <class Function, class T>
void unary_forward(const T* x, T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = Function::template value<VectorMath>(x[i]);
  });
}

template <class Function, class T>
void unary_backward(const T* g, const T* x, const T* y, T* gx, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) gx[i] = g[i] * Function::template slope<VectorMath>(x[i], y[i]);
  });
}

template <class Function, class T>
void binary_forward(const T* a, const T* b, T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = Function::template value<VectorMath>(a[i], b[i]);
  });
}

template <class Function, class T>
void binary_backward(const T* g, const T* a, const T* b, T* ga, T* gb, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    if (ga) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) ga[i] = g[i] * Function::template slope_a<VectorMath>(a[i], b[i]);
    }
    if (gb) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) gb[i] = g[i] * Function::template slope_b<VectorMath>(a[i], b[i]);
    }
  });
}

template <class T>
void affine(const T* x, T scale, T offset, T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = scale * x[i] + offset;
  });
}

template <class T>
void dropout_forward(const T* x, const DropoutMask& mask, T* y, int64_t n) {
  constexpr int64_t kPiece = 1024;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    T multipliers[kPiece];
    for (int64_t first = begin; first < end; first += kPiece) {
      const int64_t count = std::min(kPiece, end - first);
      dropout_multipliers(mask, first, count, multipliers);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) y[first + i] = x[first + i] * multipliers[i];
    }
  });
}

#define TAPEFORMER_UNARY(Function)                                                                   \
  template void unary_forward<Function>(const float*, float*, int64_t);                              \
  template void unary_forward<Function>(const double*, double*, int64_t);                            \
  template void unary_backward<Function>(const float*, const float*, const float*, float*, int64_t); \
  template void unary_backward<Function>(const double*, const double*, const double*, double*, int64_t)
#define TAPEFORMER_BINARY(Function)                                                                      \
  template void binary_forward<Function>(const float*, const float*, float*, int64_t);                   \
  template void binary_forward<Function>(const double*, const double*, double*, int64_t);                \
  template void binary_backward<Function>(const float*, const float*, const float*, float*, float*,      \
                                          int64_t);                                                      \
  template void binary_backward<Function>(const double*, const double*, const double*, double*, double*, \
                                          int64_t)

// A macro, because explicit instantiation of a list has no other form.
TAPEFORMER_UNARY(Negate);
TAPEFORMER_UNARY(Exp);
TAPEFORMER_UNARY(Log);
TAPEFORMER_UNARY(Sqrt);
TAPEFORMER_UNARY(Square);
TAPEFORMER_UNARY(Relu);
TAPEFORMER_UNARY(Gelu);
TAPEFORMER_UNARY(Elu);
TAPEFORMER_UNARY(Sigmoid);
TAPEFORMER_UNARY(Tanh);
TAPEFORMER_UNARY(Softplus);
TAPEFORMER_BINARY(Add);
TAPEFORMER_BINARY(Subtract);
TAPEFORMER_BINARY(Multiply);
TAPEFORMER_BINARY(Divide);
#undef TAPEFORMER_UNARY
#undef TAPEFORMER_BINARY

template void affine(const float*, float, float, float*, int64_t);
template void affine(const double*, double, double, double*, int64_t);
template void dropout_forward(const float*, const DropoutMask&, float*, int64_t);
template void dropout_forward(const double*, const DropoutMask&, double*, int64_t);

}  // namespace tapeformer::cpu
