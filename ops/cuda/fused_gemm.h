// Matrix products of cuBLASLt: products with a fused epilogue, and products whose algorithms are timed
// (core/cuda/product_algorithms.h).
#pragma once

#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// The functions return false, without effect, if cuBLASLt has no algorithm for the product. Pointers must be
// aligned to 16 bytes, and m, n and k must be positive. Functions with an epilogue ignore alpha and beta, and
// use 1 and 0 instead. Sums are float32 and deterministic.

// Computes a product with beta = 0 if the algorithms of products are timed on the device. Otherwise returns
// false.
template <class T, class Operand>
bool timed_gemm(const Gemm<T, Operand>& product);

// Computes c = product + bias (n,), or c = relu(product + bias) if `relu` is true.
template <class T, class Operand>
bool gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu);

// Computes c = product, and writes to gbias (m,) the sums of op(a) over k.
template <class Operand>
bool gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias);

}  // namespace tapeformer::cuda
