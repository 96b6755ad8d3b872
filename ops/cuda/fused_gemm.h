// Matrix products with a fused epilogue of cuBLASLt.
#pragma once

#include <string>
#include <type_traits>

#include "core/cuda/context.h"
#include "core/cuda/work_log.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// The functions return false, without effect, if cuBLASLt has no algorithm for the product. Pointers must be
// aligned to 16 bytes, and m, n and k must be positive. The functions ignore alpha and beta, and use 1 and 0
// instead. Sums are float32 and deterministic.

// Computes c = product + bias (n,), or c = relu(product + bias).
template <class T, class Operand>
bool gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu);

// Computes c = product, and writes to gbias (m,) the sums of op(a) over k.
template <class Operand>
bool gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias);

// Adds a product to the log of this thread, if there is one.
template <class T, class Operand>
void log_product(const Gemm<T, Operand>& p, int64_t count, const std::string& epilogue = "",
                 bool splits = true, SourceLocation where = SourceLocation::current()) {
  WorkLog* const log = WorkLog::current();
  if (!log) return;
  const bool tf32 = std::is_same_v<Operand, float> && context().precision == Precision::tf32;
  const OperandType type = std::is_same_v<Operand, double>     ? OperandType::float64
                           : std::is_same_v<Operand, BFloat16> ? OperandType::bfloat16
                           : tf32                              ? OperandType::tf32
                                                               : OperandType::float32;
  log->add_product({p.m, p.n, p.k, count, sizeof(Operand), sizeof(T), splits, epilogue}, type, p.beta != 0,
                   where);
}

}  // namespace tapeformer::cuda
