// Ops for decoding one token at a time: unrecorded, into memory that the caller made once. Nothing but making
// a DecodingLinear allocates.
#pragma once

#include "ops/linear.h"

namespace tapeformer {

// out (batch, value_dim + position_dim): row b is table[tokens[b]] followed by positions[position].
// tokens (batch,) uint8 or int64 within the table; positions (length, position_dim). To every row
// added[position] is added, of added (length, value_dim + position_dim), unless that is undefined.
void embed_into(const Tensor& table, const Tensor& tokens, const Tensor& positions, int64_t position,
                const Tensor& out, const Tensor& added = {});

// A layer's weight (out, in) and bias (out,), ready for products with `rows` rows: for many of them the
// weight is kept a second time, in the order in which they read it, instead of being put into it at every
// token.
class DecodingLinear {
 public:
  DecodingLinear() = default;
  DecodingLinear(const Tensor& weight, const Tensor& bias, int64_t rows);

  // out (rows, out) = activation(x (rows, in) weightᵀ + bias); gelu needs `scratch` of out's shape.
  void into(const Tensor& x, Activation activation, const Tensor& out, const Tensor& scratch = {}) const;

 private:
  Tensor weight_, bias_;
  Tensor packed_;  // undefined for few rows
};

// out = layer_norm(x + branch); an undefined branch means none.
void layer_norm_into(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                     const Tensor& out);

// out = a + b
void add_into(const Tensor& a, const Tensor& b, const Tensor& out);

}  // namespace tapeformer
