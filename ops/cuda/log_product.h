// Adds matrix products of cuBLAS and cuBLASLt to the WorkLog. nvcc cannot compile this header, so only .cpp
// files include it.
#pragma once

#include <string>
#include <type_traits>

#include "core/cuda/context.h"
#include "core/cuda/work_log.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// Adds a batch of `batch_count` products of the shape of `p` to the log of this thread. Does nothing if the
// thread has no log. `epilogue` is the name of the fused epilogue, and `can_split_k` states whether cuBLAS
// may divide the sums over k among thread blocks.
template <class T, class Operand>
void add_gemm_to_work_log(const Gemm<T, Operand>& p, int64_t batch_count, const std::string& epilogue = "",
                          bool can_split_k = true, SourceLocation where = SourceLocation::current()) {
  WorkLog* const log = WorkLog::current();
  if (!log) return;
  const bool uses_tf32 = std::is_same_v<Operand, float> && get_context().precision == Precision::tf32;
  const OperandType type = std::is_same_v<Operand, double>     ? OperandType::float64
                           : std::is_same_v<Operand, BFloat16> ? OperandType::bfloat16
                           : uses_tf32                         ? OperandType::tf32
                                                               : OperandType::float32;
  log->add_product({p.m, p.n, p.k, batch_count, sizeof(Operand), sizeof(T), can_split_k, epilogue}, type,
                   p.beta != 0, where);
}

}  // namespace tapeformer::cuda
