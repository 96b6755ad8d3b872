#include "ops/kernels/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <type_traits>

#include "core/base/instances.h"
#include "core/cpu/vector.h"
#include "core/threads/blas_buffer.h"
#include "core/threads/serial_libraries.h"
#include "core/threads/threads.h"
#include "ops/cpu/onednn.h"

namespace tapeformer::cpu {
namespace {

CBLAS_TRANSPOSE flag(bool transpose) {
  return transpose ? CblasTrans : CblasNoTrans;
}

blasint size(int64_t value) {
  return static_cast<blasint>(value);
}

constexpr int64_t kGrainSize = 32;                    // minimum number of rows or columns per thread
constexpr int64_t kMinGemmMultiplications = 1 << 18;  // minimum number of multiplications per thread
// Minimum number of multiplications in a product that oneDNN computes. OpenBLAS is faster for smaller
// products.
constexpr int64_t kMinOneDnnMultiplications = 1 << 15;

// Computes the product `p` in the calling thread by oneDNN, if oneDNN is faster than OpenBLAS, and otherwise
// by OpenBLAS.
template <class T>
void serial_gemm(const Gemm<T>& p) {
  if constexpr (onednn::kIsBuilt && std::is_same_v<T, float>)
    if (onednn::is_fastest(DType::float32) && p.m * p.n * p.k >= kMinOneDnnMultiplications)
      return onednn::gemm(p);
  const SerialOpenMpScope serial;
  const BlasBuffer buffer;
  // BLAS requires positive leading dimensions even if k is 0.
  const auto lda = size(std::max<int64_t>(p.lda, 1)), ldb = size(std::max<int64_t>(p.ldb, 1));
  if constexpr (sizeof(T) == 4)
    cblas_sgemm(CblasRowMajor, flag(p.transpose_a), flag(p.transpose_b), size(p.m), size(p.n), size(p.k),
                p.alpha, p.a, lda, p.b, ldb, p.beta, p.c, size(p.ldc));
  else
    cblas_dgemm(CblasRowMajor, flag(p.transpose_a), flag(p.transpose_b), size(p.m), size(p.n), size(p.k),
                p.alpha, p.a, lda, p.b, ldb, p.beta, p.c, size(p.ldc));
}

// Computes out (width,) = x (dim,) times matrix (dim, width). One copy of this code serves all loops, because
// copies can differ in which products and sums they fuse.
template <class T>
[[gnu::noinline]] void multiply_row(const T* x, const T* matrix, int64_t dim, int64_t width, T* out) {
  constexpr int kVectors = 4;
  for (int64_t first = 0; first < width; first += kVectors * kLanes<T>) {
    int64_t left[kVectors];
    Vector<T> sums[kVectors]{};
    for (int64_t j = 0; j < kVectors; ++j) left[j] = std::max<int64_t>(width - first - j * kLanes<T>, 0);
    for (int64_t k = 0; k < dim; ++k)
      for (int64_t j = 0; j < kVectors; ++j)
        sums[j] += x[k] * load_first(matrix + k * width + first + j * kLanes<T>, left[j]);
    for (int64_t j = 0; j < kVectors; ++j) store_first(out + first + j * kLanes<T>, sums[j], left[j]);
  }
}

}  // namespace

// Divides the rows or columns of the result among the threads.
template <class T>
void gemm(Backend, const Gemm<T>& p) {
  if (p.m == 0 || p.n == 0) return;
  const bool by_rows = p.m >= p.n;
  const int64_t count = by_rows ? p.m : p.n, products = (by_rows ? p.n : p.m) * std::max<int64_t>(p.k, 1);
  parallel_for(count, std::max(kMinGemmMultiplications / products + 1, kGrainSize),
               [&](int64_t begin, int64_t end) {
                 Gemm<T> part = p;
                 if (by_rows) {
                   part.m = end - begin;
                   part.a += begin * (p.transpose_a ? 1 : p.lda);
                   part.c += begin * p.ldc;
                 } else {
                   part.n = end - begin;
                   part.b += begin * (p.transpose_b ? p.ldb : 1);
                   part.c += begin;
                 }
                 serial_gemm(part);
               });
}

template <class T>
void batched_gemm(Backend, const Gemm<T>& first, int64_t count, int64_t stride_a, int64_t stride_b,
                  int64_t stride_c) {
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Gemm<T> product = first;
      product.a += i * stride_a;
      product.b += i * stride_b;
      product.c += i * stride_c;
      gemm(Backend{}, product);
    }
  };
  // If there are fewer products than threads, each product is divided among the threads.
  if (count < get_thread_count())
    run(0, count);
  else
    parallel_for(count, 1, run);
}

template <class T>
void multiply_heads(Backend, int64_t rows, int64_t heads, int64_t dim, int64_t width, const T* x,
                    const T* weight, T* out) {
  const int64_t grain = kMinGemmMultiplications / std::max<int64_t>(dim * width, 1) + 1;
  parallel_for(rows * heads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      multiply_row(x + i * dim, weight + i % heads * dim * width, dim, width, out + i * width);
  });
}

template <class T>
struct GemmKernels {
  inline static const FunctionInstances all{&gemm<T>, &batched_gemm<T>, &multiply_heads<T>};
};
template struct GemmKernels<float>;
template struct GemmKernels<double>;

}  // namespace tapeformer::cpu
