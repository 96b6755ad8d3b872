#include "ops/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "core/cuda/backend.h"
#include "core/cuda/context.h"

namespace tapeformer::cuda {
namespace {

cublasOperation_t flag(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

template <class T>
void gemm(const Gemm<T>& product) {
  batched_gemm(product, 1, 0, 0, 0);
}

// cuBLAS counts in columns: to it, our row-major c is cᵀ = op(b)ᵀ op(a)ᵀ.
template <class T>
void batched_gemm(const Gemm<T>& p, int64_t count, int64_t stride_a, int64_t stride_b, int64_t stride_c) {
  if (p.m == 0 || p.n == 0 || count == 0) return;
  constexpr bool kDouble = std::is_same_v<T, double>;
  constexpr cudaDataType_t kType = kDouble ? CUDA_R_64F : CUDA_R_32F;
  // cuBLAS wants positive leading dimensions even where k is 0.
  const int64_t lda = std::max(p.lda, p.transpose_a ? p.m : std::max<int64_t>(p.k, 1));
  const int64_t ldb = std::max(p.ldb, p.transpose_b ? std::max<int64_t>(p.k, 1) : p.n);
  check_status(cublasGemmStridedBatchedEx_64(
      context().blas, flag(p.transpose_b), flag(p.transpose_a), p.n, p.m, p.k, &p.alpha, p.b, kType, ldb,
      stride_b, p.a, kType, lda, stride_a, &p.beta, p.c, kType, p.ldc, stride_c, count,
      kDouble ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

template void gemm(const Gemm<float>&);
template void gemm(const Gemm<double>&);
template void batched_gemm(const Gemm<float>&, int64_t, int64_t, int64_t, int64_t);
template void batched_gemm(const Gemm<double>&, int64_t, int64_t, int64_t, int64_t);

}  // namespace tapeformer::cuda
