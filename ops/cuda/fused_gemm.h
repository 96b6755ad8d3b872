// Matrix products with a fused epilogue of cuBLASLt.
#pragma once

#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// The functions return false, without effect, if cuBLASLt has no algorithm for the product. Pointers must be
// aligned to 16 bytes, and m, n and k must be positive. The functions ignore alpha and beta, and use 1 and 0
// instead. Sums are float32 and deterministic.

// Computes c = product + bias (n,), or c = relu(product + bias) if `relu` is true.
template <class T, class Operand>
bool gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu);

// Computes c = product, and writes to gbias (m,) the sums of op(a) over k.
template <class Operand>
bool gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias);

}  // namespace tapeformer::cuda
