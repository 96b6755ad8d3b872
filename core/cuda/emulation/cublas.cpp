#include "core/cuda/emulation/cublas.h"

#include <cblas.h>

namespace {

CBLAS_TRANSPOSE flag(cublasOperation_t op) {
  return op == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}
blasint size(int64_t value) {
  return static_cast<blasint>(value);
}

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an invalid value was passed to cuBLAS"
                                                 : "the emulation of cuBLAS does not have these types";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b,
                                             int64_t m, int64_t n, int64_t k, const void* alpha,
                                             const void* a, cudaDataType_t type_a, int64_t lda,
                                             long long stride_a, const void* b, cudaDataType_t type_b,
                                             int64_t ldb, long long stride_b, const void* beta, void* c,
                                             cudaDataType_t type_c, int64_t ldc, long long stride_c,
                                             int64_t count, cublasComputeType_t, cublasGemmAlgo_t) {
  if (type_a != type_b || type_a != type_c || type_a == CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int64_t least_a = op_a == CUBLAS_OP_N ? m : k, least_b = op_b == CUBLAS_OP_N ? k : n;
  if (lda < least_a || ldb < least_b || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
  for (int64_t i = 0; i < count; ++i) {
    if (type_a == CUDA_R_32F)
      cblas_sgemm(CblasColMajor, flag(op_a), flag(op_b), size(m), size(n), size(k),
                  *static_cast<const float*>(alpha), static_cast<const float*>(a) + i * stride_a, size(lda),
                  static_cast<const float*>(b) + i * stride_b, size(ldb), *static_cast<const float*>(beta),
                  static_cast<float*>(c) + i * stride_c, size(ldc));
    else
      cblas_dgemm(CblasColMajor, flag(op_a), flag(op_b), size(m), size(n), size(k),
                  *static_cast<const double*>(alpha), static_cast<const double*>(a) + i * stride_a, size(lda),
                  static_cast<const double*>(b) + i * stride_b, size(ldb), *static_cast<const double*>(beta),
                  static_cast<double*>(c) + i * stride_c, size(ldc));
  }
  return CUBLAS_STATUS_SUCCESS;
}
