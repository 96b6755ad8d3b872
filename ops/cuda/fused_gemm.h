// A product that does on its way what would be a pass of its own: cuBLASLt's epilogues.
#pragma once

#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// False, with nothing done, where cuBLASLt has no such product: pointers must begin at multiples of 16 bytes,
// and none of m, n, k is 0. alpha is taken for 1 and beta for 0. Sums are float32 and repeat to the bit.

// c = product + bias (n,), or relu of it
template <class T, class Factor>
bool gemm_with_bias(const Gemm<T, Factor>& product, const T* bias, bool relu);

// c = product; gbias (m,) receives the sums over k of op(a)
template <class Factor>
bool gemm_with_bias_gradient(const Gemm<float, Factor>& product, float* gbias);

}  // namespace tapeformer::cuda
