// CPU emulation of the cuBLAS functions that the CUDA backend calls. OpenBLAS computes the products. This
// header replaces cublas_v2.h.
#pragma once

#include "core/emulation/runtime.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_INVALID_VALUE,
  CUBLAS_STATUS_ARCH_MISMATCH,
  CUBLAS_STATUS_NOT_SUPPORTED
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_64F };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
struct EmulatedCublas {
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};
using cublasHandle_t = EmulatedCublas*;

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new EmulatedCublas;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
  handle->math = math;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status);

// Computes `count` products c (m, n) = alpha op(a) op(b) + beta c of column-major matrices. Returns
// CUBLAS_STATUS_NOT_SUPPORTED for an unsupported combination of types, or if c is bfloat16 and beta is not 0.
//
// If c is bfloat16, the sum over the first half of k is rounded to bfloat16, because cuBLAS can round partial
// sums in this way. The math mode CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION disables the rounding.
cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
    const void* alpha, const void* a, cudaDataType_t type_a, int64_t lda, long long stride_a, const void* b,
    cudaDataType_t type_b, int64_t ldb, long long stride_b, const void* beta, void* c, cudaDataType_t type_c,
    int64_t ldc, long long stride_c, int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
// Calls cublasGemmStridedBatchedEx_64() for one product.
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                               cudaDataType_t type_a, int64_t lda, const void* b, cudaDataType_t type_b,
                               int64_t ldb, const void* beta, void* c, cudaDataType_t type_c, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
