#include "core/emulation/cublas.h"

#include <cblas.h>

#include <algorithm>
#include <vector>

#include "core/base/dtype.h"

namespace {

CBLAS_TRANSPOSE to_cblas(cublasOperation_t op) {
  return op == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}
blasint to_blasint(int64_t value) {
  return static_cast<blasint>(value);
}

// Rounds to tf32, which has 10 mantissa bits, with ties to even.
float round_to_tf32(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  return value != value ? value : std::bit_cast<float>((word + 0xFFF + ((word >> 13) & 1)) & ~0x1FFFu);
}

float bfloat16_to_float(uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat16) << 16);
}

// Returns a column-major operand (rows, columns) as float32, rounded to tf32 if `tf32` is true. `stride` is
// the leading dimension. The result points to `matrix` or to a converted copy in `memory`.
const float* convert_to_float(const void* matrix, cudaDataType_t type, bool tf32, int64_t rows,
                              int64_t columns, int64_t stride, std::vector<float>& memory) {
  if (type == CUDA_R_32F && !tf32) return static_cast<const float*>(matrix);
  const int64_t count = columns == 0 ? 0 : (columns - 1) * stride + rows;
  memory.resize(static_cast<size_t>(std::max<int64_t>(count, 1)));
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = column * stride + row;
      memory[static_cast<size_t>(index)] =
          type == CUDA_R_32F ? round_to_tf32(static_cast<const float*>(matrix)[index])
                             : bfloat16_to_float(static_cast<const uint16_t*>(matrix)[index]);
    }
  return memory.data();
}

// The arguments of cublasGemmStridedBatchedEx_64(). A captured graph stores a Product object.
struct Product {
  CBLAS_TRANSPOSE op_a, op_b;
  int64_t m, n, k;
  double alpha, beta;
  const void *a, *b;
  cudaDataType_t operand_type;
  int64_t rows_a, columns_a, lda, stride_a, rows_b, columns_b, ldb, stride_b;
  void* c;
  int64_t ldc, stride_c, count;
  bool is_double, tf32;
  bool rounds_result;  // true if c is bfloat16; beta is then 0
  // If c is bfloat16 and rounds_partial_sums is true, the sum over the first half of k is rounded to
  // bfloat16. cuBLAS can round partial sums in this way unless the math mode of the handle disables the
  // rounding.
  bool rounds_partial_sums;

  void run() const {
    const int64_t bytes = operand_type == CUDA_R_16BF ? 2 : 4;
    std::vector<float> memory_a, memory_b;
    for (int64_t i = 0; i < count; ++i) {
      if (is_double) {
        cblas_dgemm(CblasColMajor, op_a, op_b, to_blasint(m), to_blasint(n), to_blasint(k), alpha,
                    static_cast<const double*>(a) + i * stride_a, to_blasint(lda),
                    static_cast<const double*>(b) + i * stride_b, to_blasint(ldb), beta,
                    static_cast<double*>(c) + i * stride_c, to_blasint(ldc));
        continue;
      }
      const float* const first = convert_to_float(static_cast<const char*>(a) + i * stride_a * bytes,
                                                  operand_type, tf32, rows_a, columns_a, lda, memory_a);
      const float* const second = convert_to_float(static_cast<const char*>(b) + i * stride_b * bytes,
                                                   operand_type, tf32, rows_b, columns_b, ldb, memory_b);
      const auto multiply = [&](int64_t from, int64_t to, float* sums, double scale) {
        cblas_sgemm(CblasColMajor, op_a, op_b, to_blasint(m), to_blasint(n), to_blasint(to - from),
                    static_cast<float>(alpha), first + from * (op_a == CblasNoTrans ? lda : 1),
                    to_blasint(lda), second + from * (op_b == CblasNoTrans ? 1 : ldb), to_blasint(ldb),
                    static_cast<float>(scale), sums, to_blasint(ldc));
      };
      if (!rounds_result) {
        multiply(0, k, static_cast<float*>(c) + i * stride_c, beta);
        continue;
      }
      std::vector<float> sums(static_cast<size_t>(ldc * n));
      multiply(0, k / 2, sums.data(), 0);
      if (rounds_partial_sums)
        for (float& sum : sums) sum = static_cast<float>(tapeformer::BFloat16(sum));
      multiply(k / 2, k, sums.data(), 1);
      auto* const result = static_cast<tapeformer::BFloat16*>(c) + i * stride_c;
      for (int64_t column = 0; column < n; ++column)
        for (int64_t row = 0; row < m; ++row)
          result[column * ldc + row] = tapeformer::BFloat16(sums[static_cast<size_t>(column * ldc + row)]);
    }
  }
};

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an invalid value was passed to cuBLAS"
                                                 : "the emulation of cuBLAS does not have these types";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
    const void* alpha, const void* a, cudaDataType_t type_a, int64_t lda, long long stride_a, const void* b,
    cudaDataType_t type_b, int64_t ldb, long long stride_b, const void* beta, void* c, cudaDataType_t type_c,
    int64_t ldc, long long stride_c, int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool is_double = type_c == CUDA_R_64F, tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const bool rounded = type_a == CUDA_R_16BF, rounds_result = type_c == CUDA_R_16BF;
  if (type_a != type_b || (type_a != type_c && !(rounded && type_c == CUDA_R_32F)) ||
      (is_double ? compute != CUBLAS_COMPUTE_64F : compute == CUBLAS_COMPUTE_64F) || (tf32 && rounded) ||
      (rounds_result && *static_cast<const float*>(beta) != 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const int64_t rows_a = op_a == CUBLAS_OP_N ? m : k, rows_b = op_b == CUBLAS_OP_N ? k : n;
  if (lda < rows_a || ldb < rows_b || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
  const auto scalar = [&](const void* value) {
    return is_double ? *static_cast<const double*>(value)
                     : static_cast<double>(*static_cast<const float*>(value));
  };
  const Product product{
      .op_a = to_cblas(op_a),
      .op_b = to_cblas(op_b),
      .m = m,
      .n = n,
      .k = k,
      .alpha = scalar(alpha),
      .beta = scalar(beta),
      .a = a,
      .b = b,
      .operand_type = type_a,
      .rows_a = rows_a,
      .columns_a = op_a == CUBLAS_OP_N ? k : m,
      .lda = lda,
      .stride_a = stride_a,
      .rows_b = rows_b,
      .columns_b = op_b == CUBLAS_OP_N ? n : k,
      .ldb = ldb,
      .stride_b = stride_b,
      .c = c,
      .ldc = ldc,
      .stride_c = stride_c,
      .count = count,
      .is_double = is_double,
      .tf32 = tf32,
      .rounds_result = rounds_result,
      .rounds_partial_sums = handle->math != CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION};
  tapeformer::cuda::emulation::submit([product] { product.run(); });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                               cudaDataType_t type_a, int64_t lda, const void* b, cudaDataType_t type_b,
                               int64_t ldb, const void* beta, void* c, cudaDataType_t type_c, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb,
                                       0, beta, c, type_c, ldc, 0, 1, compute, algorithm);
}
