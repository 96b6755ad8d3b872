// Ops for decoding one token at a time. The functions in this file do not record on the tape, and write their
// results to tensors that the caller provides. On a CUDA device, a matrix product allocates memory if it must
// round a float32 input to bfloat16.
#pragma once

#include <functional>

#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rounded_weights.h"

namespace tapeformer {

// Writes the embeddings of one token per sequence to out (batch, value_dim + position_dim). Row b is the
// concatenation of table[tokens[b]] and positions[position]. `tokens` (batch,) holds row indices of the table
// as uint8, int32 or int64, and `positions` is (length, position_dim). If `added_rows` (length, value_dim +
// position_dim) is defined, added_rows[position] is added to each row.
void embed_into(const Tensor& table, const Tensor& tokens, const Tensor& positions, int64_t position,
                const Tensor& out, const Tensor& added_rows = {});

// The parameters of a norm in decoding: a layer norm, or an RMS norm if `bias` is undefined. `weight` and
// `bias` are (dim,).
struct DecodingNorm {
  Tensor weight, bias = {};
  double eps = kLayerNormEps;
};

// A linear layer for decoding, with the weight (out, in) and the bias (out,), which can be undefined. `rows`
// is the maximum number of rows of an input. On the CPU, the object keeps a packed copy of the weight in the
// dtype get_operand_dtype(weight) (ops/linear.h) or, for float32 weights, in 8-bit integers. On a CUDA device
// with the precision bfloat16 (core/device_control.h), the object keeps bfloat16 copies of a float32 weight
// and a float32 bias.
class DecodingLinear {
 public:
  DecodingLinear() = default;
  // Throws std::invalid_argument for WeightFormat::int8 unless the weight is float32 on the CPU.
  DecodingLinear(const Tensor& weight, const Tensor& bias, int64_t rows,
                 WeightFormat format = WeightFormat::operand);

  // Computes out = activation(x weightᵀ + bias), where x is (rows, weight.size(1)) and `out` is (rows,
  // weight.size(0)). If needs_preactivation(activation) is true, `scratch` must be a workspace with the shape
  // and dtype of `out`. On a CUDA device, x can be bfloat16. In this case, `out` is bfloat16 or float32.
  void forward_into(const Tensor& x, Activation activation, const Tensor& out,
                    const Tensor& scratch = {}) const;

  // Computes out = norm(residual + x weightᵀ + bias). `branch_result` is a workspace with the shape and dtype
  // of out. If `rounded_out` is defined, the function also writes `out` in bfloat16 to `rounded_out`.
  void forward_residual_norm_into(const Tensor& x, const Tensor& residual, const DecodingNorm& norm,
                                  const Tensor& branch_result, const Tensor& out,
                                  const Tensor& rounded_out = {}) const;

 private:
  bool try_fused_residual_norm(const Tensor& x, const Tensor& residual, const DecodingNorm& norm,
                               const Tensor& out, const Tensor& rounded_out) const;

  Tensor weight_, bias_;
  RoundedWeights rounded_weights_;
  // The product with a weight on the CPU. For a weight on another device, the function object is empty.
  std::function<void(const Tensor& x, Activation, const Tensor& preactivation, const Tensor& out)>
      cpu_product_;
};

// Rounds a float32 matrix on the CPU in place to the values that DecodingLinear has with WeightFormat::int8.
void round_to_int8_blocks(const Tensor& matrix);

// Computes out = norm(x + branch), or out = norm(x) if `branch` is undefined. `out` must not be x. If
// `rounded_out` is defined, the function also writes the result in bfloat16 to `rounded_out`.
void norm_into(const Tensor& x, const Tensor& branch, const DecodingNorm& norm, const Tensor& out,
               const Tensor& rounded_out = {});

// Compute out = a + b, out = a * b, out = a / b, out = sigmoid(x) and out = softplus(x) for contiguous
// tensors of equal shapes and dtypes. `out` can be an input.
void add_into(const Tensor& a, const Tensor& b, const Tensor& out);
void mul_into(const Tensor& a, const Tensor& b, const Tensor& out);
void div_into(const Tensor& a, const Tensor& b, const Tensor& out);
void sigmoid_into(const Tensor& x, const Tensor& out);
void softplus_into(const Tensor& x, const Tensor& out);

// Computes out[b, h] = x[b, h] weight[h], the product of each head with a matrix of its own: x (batch, heads,
// dim), weight (heads, dim, width) and out (batch, heads, width), contiguous, of one dtype, float32 or
// float64.
void multiply_heads_into(const Tensor& x, const Tensor& weight, const Tensor& out);

// Replaces x, which is contiguous and float32 or float64, by its softmax over the last dimension.
void softmax_in_place(const Tensor& x);

}  // namespace tapeformer
