// Kernels of matrix products, which compute c = alpha op(a) op(b) + beta c for row-major matrices c (m, n),
// op(a) (m, k) and op(b) (k, n). op(x) is x or its transpose.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/base/dtype.h"

namespace tapeformer {

// The arguments of a matrix product. T is the type of c, and Operand is the type of a and b. The two types
// differ only on CUDA, where a product of bfloat16 operands can have a float32 result.
template <class T, class Operand = T>
struct Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  Compute<T> alpha = 1;
  const Operand* a = nullptr;
  int64_t lda = 0;
  const Operand* b = nullptr;
  int64_t ldb = 0;
  Compute<T> beta = 0;  // if 0, the previous contents of c are not read
  T* c = nullptr;
  int64_t ldc = 0;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes one product. If the CPU kernel is called inside a parallel loop, it uses only the calling
    // thread.
    template <class T> void gemm(Backend, const Gemm<T>& product);
    // Computes `count` products of matrices of the same sizes. The matrices of product i have the addresses:
    //   first_product.a + i * stride_a, first_product.b + i * stride_b, first_product.c + i * stride_c
    // If stride_a is 0, all products have the same a.
    template <class T> void batched_gemm(Backend, const Gemm<T>& first_product, int64_t count,
                                         int64_t stride_a, int64_t stride_b, int64_t stride_c);
    // Multiplies each row of x (rows, heads, dim) by the matrix of its head, weight (heads, dim, width), and
    // writes the results to out (rows, heads, width). On the CPU, the result of a row does not depend on the
    // number of rows.
    template <class T> void multiply_heads(Backend, int64_t rows, int64_t heads, int64_t dim, int64_t width,
                                           const T* x, const T* weight, T* out);

)

namespace cuda {

// Computes a product of bfloat16 operands with a float32 result. As in gemm<BFloat16>(), the sums are
// float32.
void gemm(Backend, const Gemm<float, BFloat16>& product);

}  // namespace cuda
}  // namespace tapeformer
