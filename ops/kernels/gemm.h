// Matrix products of row-major matrices: c (m, n) = alpha op(a) op(b) + beta c, where op(a) is (m, k) and
// op(b) (k, n).
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dtype.h"

namespace tapeformer {

// The operands and the result may have different types: on CUDA, bfloat16 operands with a float32 result.
template <class T, class Operand = T>
struct Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  Compute<T> alpha = 1;
  const Operand* a = nullptr;
  int64_t lda = 0;
  const Operand* b = nullptr;
  int64_t ldb = 0;
  Compute<T> beta = 0;  // if beta is 0, c is not read
  T* c = nullptr;
  int64_t ldc = 0;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes a product. If the CPU kernel is called inside a parallel loop, it runs in the calling thread.
    template <class T> void gemm(Backend, const Gemm<T>& product);
    // Computes `count` products. The matrices of consecutive products are stride_a, stride_b and stride_c
    // elements apart. If a stride is 0, all products share this matrix.
    template <class T> void batched_gemm(Backend, const Gemm<T>& first, int64_t count, int64_t stride_a,
                                         int64_t stride_b, int64_t stride_c);

)

namespace cuda {

// Computes a float32 product of bfloat16 operands. Sums are float32, also in gemm<BFloat16>.
void gemm(Backend, const Gemm<float, BFloat16>& product);

}  // namespace cuda
}  // namespace tapeformer
