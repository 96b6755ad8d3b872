#include "core/emulation/cublas_lt.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/base/dtype.h"

using tapeformer::BFloat16;
using tapeformer::cuda::emulation::failing_algorithms;

namespace {

float read_element(const void* matrix, const EmulatedLayout& layout, int64_t row, int64_t column) {
  const int64_t index = column * layout.stride + row;
  return layout.type == CUDA_R_16BF ? static_cast<float>(static_cast<const BFloat16*>(matrix)[index])
                                    : static_cast<const float*>(matrix)[index];
}

// Returns whether the emulation supports products d = a b with the types of the layouts.
bool supports(const EmulatedLayout& a, const EmulatedLayout& b, const EmulatedLayout& d) {
  const bool is_known = a.type == CUDA_R_32F || a.type == CUDA_R_16BF;
  return is_known && a.type == b.type && (d.type == CUDA_R_32F || d.type == a.type);
}

// Applies the epilogue to `d`, the float32 result of the product. CUBLASLT_EPILOGUE_BGRADB does not change
// `d`, but writes the sums of b over k to matmul.bias.
void run_epilogue(const EmulatedMatmul& matmul, const void* b, const EmulatedLayout& layout_b, float* d,
                  const EmulatedLayout& layout_d, int64_t k) {
  const EmulatedLayout bias_layout{layout_d.type, layout_d.rows, 1, layout_d.rows};
  for (int64_t column = 0; column < layout_d.columns; ++column) {
    if (matmul.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
      double sum = 0;
      for (int64_t row = 0; row < k; ++row)
        sum += static_cast<double>(matmul.op_b == CUBLAS_OP_T ? read_element(b, layout_b, column, row)
                                                              : read_element(b, layout_b, row, column));
      static_cast<float*>(matmul.bias)[column] = static_cast<float>(sum);
      continue;
    }
    float* const values = d + column * layout_d.stride;
    for (int64_t row = 0; row < layout_d.rows; ++row) {
      values[row] += read_element(matmul.bias, bias_layout, row, 0);
      if (matmul.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS && !(values[row] > 0)) values[row] = 0;
    }
  }
}

}  // namespace

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmul, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *matmul = new EmulatedMatmul{compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul) {
  delete matmul;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmul,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, sizeof(field));
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(matmul->op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(matmul->op_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(matmul->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(matmul->bias);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  *layout = new EmulatedLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (!supports(*a, *b, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = std::min(wanted, static_cast<int>(failing_algorithms.size()));
  const int32_t rounds_partial_sums = preference->reduction_scheme_mask == CUBLASLT_REDUCTION_SCHEME_MASK;
  for (int i = 0; i < *found; ++i) results[i] = {{i, rounds_partial_sums}, 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void*,
                              size_t, cudaStream_t) {
  const bool transpose_b = matmul->op_b == CUBLAS_OP_T;
  const int64_t m = layout_d->rows, n = layout_d->columns,
                k = matmul->op_a == CUBLAS_OP_T ? layout_a->rows : layout_a->columns;
  if (c != d || (matmul->op_a == CUBLAS_OP_T ? layout_a->columns : layout_a->rows) != m ||
      (transpose_b ? layout_b->columns : layout_b->rows) != k ||
      (transpose_b ? layout_b->rows : layout_b->columns) != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (matmul->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !matmul->bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (failing_algorithms.at(static_cast<size_t>(algorithm->index))) return CUBLAS_STATUS_NOT_SUPPORTED;
  // If d is bfloat16, the product and the epilogue are computed in `sums` in float32 and rounded at the end.
  const bool rounds_result = layout_d->type == CUDA_R_16BF;
  const auto sums = std::make_shared<std::vector<float>>(rounds_result ? layout_d->stride * n : 0);
  float* const result = rounds_result ? sums->data() : static_cast<float*>(d);
  EmulatedCublas handle;
  const auto multiply = [&](int64_t from, int64_t to, const void* scale) {
    const auto skip_to_part = [&](const void* matrix, const EmulatedLayout& layout, bool along_column) {
      const int64_t bytes = layout.type == CUDA_R_16BF ? 2 : 4;
      return static_cast<const char*>(matrix) + from * (along_column ? 1 : layout.stride) * bytes;
    };
    return cublasGemmStridedBatchedEx_64(
        &handle, matmul->op_a, matmul->op_b, m, n, to - from, alpha,
        skip_to_part(a, *layout_a, matmul->op_a == CUBLAS_OP_T), layout_a->type, layout_a->stride, 0,
        skip_to_part(b, *layout_b, !transpose_b), layout_b->type, layout_b->stride, 0, scale, result,
        CUDA_R_32F, layout_d->stride, 0, 1, matmul->compute_type, CUBLAS_GEMM_DEFAULT);
  };
  const bool rounds_partial_sums = rounds_result && algorithm->rounds_partial_sums;
  const int64_t part_count = std::min<int64_t>(k, rounds_partial_sums ? 2 : algorithm->index + 1);
  const float one = 1;
  for (int64_t part = 0; part < part_count; ++part) {
    const cublasStatus_t status =
        multiply(k * part / part_count, k * (part + 1) / part_count, part == 0 ? beta : &one);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (rounds_partial_sums && part + 1 < part_count)
      tapeformer::cuda::emulation::submit([sums] {
        for (float& sum : *sums) sum = static_cast<float>(BFloat16(sum));
      });
  }
  tapeformer::cuda::emulation::submit(
      [matmul = *matmul, b, layout_b = *layout_b, d, result, sums, layout_d = *layout_d, k] {
        if (matmul.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
          run_epilogue(matmul, b, layout_b, result, layout_d, k);
        for (size_t i = 0; i < sums->size(); ++i) static_cast<BFloat16*>(d)[i] = BFloat16((*sums)[i]);
      });
  return CUBLAS_STATUS_SUCCESS;
}
