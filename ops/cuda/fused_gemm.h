// Matrix products with a fused epilogue, which cuBLASLt computes. A product uses the first algorithm that its
// heuristic suggests and that the device supports.
#pragma once

#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {

// Each function in this file returns true if it has computed the product. If cuBLASLt has no algorithm for
// the product, if a pointer is not aligned to 16 bytes, or if m, n or k is 0, the function returns false and
// does nothing. Products are accumulated in float32, and the results are deterministic. The members `alpha`
// and `beta` of the product are ignored.

// Computes c = op(a) op(b) + bias, or c = relu(op(a) op(b) + bias) if `relu` is true. `bias` has the shape
// (n,).
template <class T, class Operand>
bool try_gemm_with_bias(const Gemm<T, Operand>& product, const T* bias, bool relu);

// Computes c = op(a) op(b), and writes the sum of each row of op(a) to `gbias`, which has the shape (m,). If
// the product computes the gradient of the weight of a linear layer, op(a) is the transposed gradient of the
// output, so gbias is the gradient of the bias.
template <class Operand>
bool try_gemm_with_bias_gradient(const Gemm<float, Operand>& product, float* gbias);

}  // namespace tapeformer::cuda
