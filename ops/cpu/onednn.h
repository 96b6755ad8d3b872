// Matrix products computed by oneDNN. gemm(), multiply() and multiply_transposed() run in the calling thread
// and can be called in parallel loops. pack() uses all threads.
//
// A `matmul` primitive is compiled for one shape. multiply() and multiply_transposed() therefore process the
// rows in blocks of a few fixed sizes, with one primitive per size. gemm() calls dnnl_sgemm(), which accepts
// any shape.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/dtype.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cpu::onednn {

#if defined(TAPEFORMER_ONEDNN)
inline constexpr bool kIsBuilt = true;
#else
inline constexpr bool kIsBuilt = false;
#endif

// Returns whether oneDNN is the fastest library for operands of type `operand` on this processor. For
// float32, oneDNN is the fastest library if it uses AVX-512. For bfloat16, oneDNN is the fastest library if
// it uses AVX512-BF16 and prefers_bfloat16_dot_products() is true. If the environment variable
// DNNL_MAX_CPU_ISA is AVX2, oneDNN uses neither AVX-512 nor AVX512-BF16.
bool is_fastest(DType operand);

// Returns whether DNNL_MAX_CPU_ISA allows AMX.
bool is_amx_allowed();

// Returns the version of the loaded library, for example "2.6.3".
std::string version();

// A compiled matrix product out = a b, where a is (rows, depth), b is (depth, columns) and out is (rows,
// columns). `depth` and `columns` are fixed. The operands are float32 or bfloat16, and the result is float32.
class Product;
// Returns the product for a shape. The first call for a shape compiles the product, which is kept until the
// program ends. The operands are contiguous; out_stride is the row stride of the result in elements.
const Product& get_product(DType operand, int64_t depth, int64_t columns, int64_t out_stride);
int64_t get_packed_bytes(const Product& product);
// Packs b, which is stored as (depth, columns), or as (columns, depth) if `transposed` is true. Rounds the
// elements to the type of the operands.
void pack(const Product& product, const float* b, bool transposed, void* packed);
// Computes out (rows, columns) = a (rows, depth) b, where `packed` is the result of pack() for b.
void multiply(const Product& product, int64_t rows, const void* a, const void* packed, float* out);

// Computes the product `p`. All sizes must be positive.
void gemm(const Gemm<float>& p);

// Computes out (m, n) = aᵀ b or, if `add` is true, out += aᵀ b, for contiguous a (rows, m) and b (rows, n)
// with elements of type `operand`. `rows` must not be 0.
void multiply_transposed(DType operand, int64_t rows, int64_t m, int64_t n, const void* a, const void* b,
                         bool add, float* out);

}  // namespace tapeformer::cpu::onednn
