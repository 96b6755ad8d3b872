// Logging of matrix products. nvcc cannot compile this header, so only .cpp files include it.
#pragma once

#include <string>
#include <type_traits>

#include "core/cuda/context.h"
#include "core/cuda/work_log.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// Adds a product to the log of this thread, if there is one.
template <class T, class Operand>
void log_product(const Gemm<T, Operand>& p, int64_t count, const std::string& epilogue = "",
                 bool can_split_k = true, SourceLocation where = SourceLocation::current()) {
  WorkLog* const log = WorkLog::current();
  if (!log) return;
  const bool tf32 = std::is_same_v<Operand, float> && context().precision == Precision::tf32;
  const OperandType type = std::is_same_v<Operand, double>     ? OperandType::float64
                           : std::is_same_v<Operand, BFloat16> ? OperandType::bfloat16
                           : tf32                              ? OperandType::tf32
                                                               : OperandType::float32;
  log->add_product({p.m, p.n, p.k, count, sizeof(Operand), sizeof(T), can_split_k, epilogue}, type,
                   p.beta != 0, where);
}

}  // namespace tapeformer::cuda
