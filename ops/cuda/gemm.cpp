#include "ops/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "core/cuda/context.h"
#include "core/instances.h"
#include "ops/cuda/fused_gemm.h"
#include "ops/cuda/log_product.h"

namespace tapeformer::cuda {
namespace {

cublasOperation_t flag(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

template <class T>
constexpr cudaDataType_t type_of() {
  if (std::is_same_v<T, double>) return CUDA_R_64F;
  return std::is_same_v<T, BFloat16> ? CUDA_R_16BF : CUDA_R_32F;
}

template <class T, class Operand>
cublasComputeType_t compute_type() {
  if (std::is_same_v<T, double>) return CUBLAS_COMPUTE_64F;
  const bool tf32 = std::is_same_v<Operand, float> && context().precision == Precision::tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// Calls cuBLAS. cuBLAS is column-major, so it computes cᵀ = op(b)ᵀ op(a)ᵀ, which is the row-major c in
// memory.
template <class T, class Operand>
void run(const Gemm<T, Operand>& p, int64_t count, int64_t stride_a, int64_t stride_b, int64_t stride_c) {
  if (p.m == 0 || p.n == 0 || count == 0) return;
  if constexpr (!std::is_same_v<T, double>)
    if (count == 1 && timed_gemm(p)) return;
  // cuBLAS requires positive leading dimensions and valid pointers even if k is 0.
  const int64_t lda = std::max(p.lda, p.transpose_a ? p.m : std::max<int64_t>(p.k, 1));
  const int64_t ldb = std::max(p.ldb, p.transpose_b ? std::max<int64_t>(p.k, 1) : p.n);
  const void* const a = p.k == 0 ? static_cast<const void*>(p.c) : p.a;
  const void* const b = p.k == 0 ? static_cast<const void*>(p.c) : p.b;
  log_product(p, count);
  // cuBLAS has more algorithms for a single product than for a batch of one product.
  if (count == 1)
    return check_status(cublasGemmEx_64(context().blas, flag(p.transpose_b), flag(p.transpose_a), p.n, p.m,
                                        p.k, &p.alpha, b, type_of<Operand>(), ldb, a, type_of<Operand>(), lda,
                                        &p.beta, p.c, type_of<T>(), p.ldc, compute_type<T, Operand>(),
                                        CUBLAS_GEMM_DEFAULT));
  check_status(cublasGemmStridedBatchedEx_64(
      context().blas, flag(p.transpose_b), flag(p.transpose_a), p.n, p.m, p.k, &p.alpha, b,
      type_of<Operand>(), ldb, stride_b, a, type_of<Operand>(), lda, stride_a, &p.beta, p.c, type_of<T>(),
      p.ldc, stride_c, count, compute_type<T, Operand>(), CUBLAS_GEMM_DEFAULT));
}

}  // namespace

template <class T>
void gemm(Backend, const Gemm<T>& product) {
  run(product, 1, 0, 0, 0);
}

template <class T>
void batched_gemm(Backend, const Gemm<T>& first, int64_t count, int64_t stride_a, int64_t stride_b,
                  int64_t stride_c) {
  run(first, count, stride_a, stride_b, stride_c);
}

void gemm(Backend, const Gemm<float, BFloat16>& product) {
  run(product, 1, 0, 0, 0);
}

template <class T>
struct GemmKernels {
  inline static const Instances all{&gemm<T>, &batched_gemm<T>};
};
template struct GemmKernels<float>;
template struct GemmKernels<double>;
template struct GemmKernels<BFloat16>;

}  // namespace tapeformer::cuda
