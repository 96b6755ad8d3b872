// Ops for decoding one token at a time: unrecorded, into memory that the caller made once. Nothing here
// allocates.
#pragma once

#include "ops/linear.h"

namespace tapeformer {

// out (batch, value_dim + position_dim): row b is table[tokens[b]] followed by positions[position].
// tokens (batch,) uint8 or int64 within the table; positions (length, position_dim).
void embed_into(const Tensor& table, const Tensor& tokens, const Tensor& positions, int64_t position,
                const Tensor& out);

// out (rows, out) = activation(x (rows, in) weightᵀ + bias); gelu needs `scratch` of out's shape.
void linear_into(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation,
                 const Tensor& out, const Tensor& scratch = {});

// out = layer_norm(x + branch); an undefined branch means none.
void layer_norm_into(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                     const Tensor& out);

// out = a + b
void add_into(const Tensor& a, const Tensor& b, const Tensor& out);

}  // namespace tapeformer
