// Matrix products of row-major matrices: c (m, n) = alpha op(a) op(b) + beta c, where op(a) is (m, k) and
// op(b) (k, n).
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dtype.h"

namespace tapeformer {

// The factors may have another type than the result: on a device, bfloat16 with float32.
template <class T, class Factor = T>
struct Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  Compute<T> alpha = 1;
  const Factor* a = nullptr;
  int64_t lda = 0;
  const Factor* b = nullptr;
  int64_t ldb = 0;
  Compute<T> beta = 0;  // 0: c is not read
  T* c = nullptr;
  int64_t ldc = 0;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // On the CPU, inside a parallel region the product runs in the calling thread.
    template <class T> void gemm(Backend, const Gemm<T>& product);
    // `count` products whose matrices lie at constant distances, given in elements (0: shared).
    template <class T> void batched_gemm(Backend, const Gemm<T>& first, int64_t count, int64_t stride_a,
                                         int64_t stride_b, int64_t stride_c);

)

namespace cuda {

// Sums in float32; also gemm<BFloat16>.
void gemm(Backend, const Gemm<float, BFloat16>& product);

}  // namespace cuda
}  // namespace tapeformer
