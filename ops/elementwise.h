// Elementwise functions. Two operands broadcast by the rules of NumPy and must have the same dtype.
#pragma once

#include "autograd/tape.h"
#include "core/random/dropout.h"

namespace tapeformer {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);  // natural logarithm
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor relu(const Tensor& x);  // max(x, 0) with gradient 0 at 0; propagates NaN
Tensor gelu(const Tensor& x);  // x Φ(x), the exact form
Tensor elu(const Tensor& x);   // x > 0 ? x : exp(x) - 1
Tensor sigmoid(const Tensor& x);
Tensor silu(const Tensor& x);  // x sigmoid(x)
Tensor tanh(const Tensor& x);
Tensor softplus(const Tensor& x);  // log(1 + exp(x)) without overflow

// Returns x with dropout: each element is kept with probability 1 - p and divided by 1 - p
// (core/random/dropout.h). Returns x itself if p is 0.
Tensor dropout(const Tensor& x, const DropoutMask& mask);

}  // namespace tapeformer
