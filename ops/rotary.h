// Rotary positions (Su et al. 2021, "RoFormer", section 3.2.2): features i and i + n / 2 of the token at
// position p are rotated by the angle p / base^(2i / n), where n is the number of rotated features. The
// product of a rotated query and a rotated key depends on the difference of their positions only.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct RotaryOptions {
  double base = 10000;
  int64_t features = 0;        // the first features of a head are rotated; 0: all
  int64_t first_position = 0;  // position of the first token
};

// Rotates x and returns a contiguous tensor with the same shape and dtype. `x` has shape (batch, length,
// heads, dim) and dtype float32, float64 or bfloat16. Throws ShapeError if the number of rotated features is
// odd or exceeds dim.
Tensor rotary_embedding(const Tensor& x, const RotaryOptions& options = {});

// Rotates one token in place. `x` has shape (batch, heads, dim), and the token is at position
// options.first_position. In a CUDA graph, each replay increases the position by 1. The call is not recorded
// and allocates no tensor. Throws ShapeError as rotary_embedding(), and if the last dimension of x is not
// contiguous.
void rotate_token_in_place(const Tensor& x, const RotaryOptions& options);

}  // namespace tapeformer
