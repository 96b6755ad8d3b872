// Rotary positions (Su et al. 2021, "RoFormer", section 3.2.2): features i and i + dim / 2 of the token at
// position p are rotated by the angle p / base^(2i / dim). The product of a rotated query and a rotated key
// depends on the difference of their positions only.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct RotaryOptions {
  double base = 10000;
  int64_t first_position = 0;  // position of the first token
};

// Returns the rotated x (batch, length, heads, dim), float32, float64 or bfloat16, contiguous. Throws
// ShapeError if dim is odd.
Tensor rotary(const Tensor& x, const RotaryOptions& options = {});

// Rotates x (batch, heads, dim), one token at `first_position`, in place. The position advances with each
// replay of a CUDA graph. The call is not recorded and allocates no tensor. Throws ShapeError if dim is odd
// or the last dimension of x is not contiguous.
void rotary_step(const Tensor& x, const RotaryOptions& options);

}  // namespace tapeformer
