#include "ops/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "core/base/instances.h"
#include "core/cuda/context.h"

namespace tapeformer::cuda {
namespace {

cublasOperation_t transpose_flag(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

template <class T>
constexpr cudaDataType_t cuda_type() {
  if (std::is_same_v<T, double>) return CUDA_R_64F;
  return std::is_same_v<T, BFloat16> ? CUDA_R_16BF : CUDA_R_32F;
}

template <class T, class Operand>
cublasComputeType_t choose_compute_type() {
  if (std::is_same_v<T, double>) return CUBLAS_COMPUTE_64F;
  const bool tf32 = std::is_same_v<Operand, float> && get_context().precision == Precision::tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// Computes `batch_count` matrix products. The first product is `p`, and the strides are the distances in
// elements between the matrices of consecutive products. cuBLAS uses column-major matrices, and a row-major
// matrix c has the memory layout of the column-major matrix cᵀ. Therefore cuBLAS computes cᵀ = op(b)ᵀ op(a)ᵀ.
template <class T, class Operand>
void call_cublas(const Gemm<T, Operand>& p, int64_t batch_count, int64_t stride_a, int64_t stride_b,
                 int64_t stride_c) {
  if (p.m == 0 || p.n == 0 || batch_count == 0) return;
  // cuBLAS requires positive leading dimensions and valid pointers even if k is 0.
  const int64_t lda = std::max(p.lda, p.transpose_a ? p.m : std::max<int64_t>(p.k, 1));
  const int64_t ldb = std::max(p.ldb, p.transpose_b ? std::max<int64_t>(p.k, 1) : p.n);
  const void* const a = p.k == 0 ? static_cast<const void*>(p.c) : p.a;
  const void* const b = p.k == 0 ? static_cast<const void*>(p.c) : p.b;
  ++launch_count;
  // cuBLAS has more algorithms for a single product than for a batch of one product.
  if (batch_count == 1)
    return check_status(cublasGemmEx_64(
        get_context().blas, transpose_flag(p.transpose_b), transpose_flag(p.transpose_a), p.n, p.m, p.k,
        &p.alpha, b, cuda_type<Operand>(), ldb, a, cuda_type<Operand>(), lda, &p.beta, p.c, cuda_type<T>(),
        p.ldc, choose_compute_type<T, Operand>(), CUBLAS_GEMM_DEFAULT));
  check_status(cublasGemmStridedBatchedEx_64(
      get_context().blas, transpose_flag(p.transpose_b), transpose_flag(p.transpose_a), p.n, p.m, p.k,
      &p.alpha, b, cuda_type<Operand>(), ldb, stride_b, a, cuda_type<Operand>(), lda, stride_a, &p.beta, p.c,
      cuda_type<T>(), p.ldc, stride_c, batch_count, choose_compute_type<T, Operand>(), CUBLAS_GEMM_DEFAULT));
}

}  // namespace

template <class T>
void gemm(Backend, const Gemm<T>& product) {
  call_cublas(product, 1, 0, 0, 0);
}

template <class T>
void batched_gemm(Backend, const Gemm<T>& first, int64_t batch_count, int64_t stride_a, int64_t stride_b,
                  int64_t stride_c) {
  call_cublas(first, batch_count, stride_a, stride_b, stride_c);
}

template <class T>
void multiply_heads(Backend, int64_t rows, int64_t heads, int64_t dim, int64_t width, const T* x,
                    const T* weight, T* out) {
  const Gemm<T> first{.m = rows,
                      .n = width,
                      .k = dim,
                      .a = x,
                      .lda = heads * dim,
                      .b = weight,
                      .ldb = width,
                      .c = out,
                      .ldc = heads * width};
  call_cublas(first, heads, dim, dim * width, width);
}

void gemm(Backend, const Gemm<float, BFloat16>& product) {
  call_cublas(product, 1, 0, 0, 0);
}

template <class T>
struct GemmKernels {
  inline static const FunctionInstances all{&gemm<T>, &batched_gemm<T>, &multiply_heads<T>};
};
template struct GemmKernels<float>;
template struct GemmKernels<double>;
template struct GemmKernels<BFloat16>;

}  // namespace tapeformer::cuda
