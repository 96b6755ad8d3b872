// Rotary positions (Su et al. 2021, "RoFormer", section 3.2.2): features i and i + n / 2 of the token at
// position p are rotated by the angle p / base^(2i / n), where n is the number of rotated features. The
// product of a rotated query and a rotated key depends on the difference of their positions only.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

enum class RotaryScalingKind { none, linear, llama3, yarn };

// Smaller angles for texts that are longer than those of an earlier training. The angle θ = base^(-2i / n)
// becomes θ (s + (1 - s) / factor), where s is 0 for `linear` (Chen et al. 2023). Otherwise, the pair makes
// r = length θ / 2π turns in a text of the earlier training, and s rises from 0 at r = slow to 1 at r = fast:
//   llama3   linearly in r (Llama 3.1);
//   yarn     linearly in the index i, between whole indices (YaRN, Peng et al. 2023, section 3.2). The
//   rotated
//            features are multiplied by `amplitude`, too.
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::none;
  double factor = 1;
  int64_t length = 0;  // longest text of the earlier training, in tokens
  double slow = 1, fast = 4;
  double amplitude = 0;  // 0: 1 + 0.1 ln(factor), or 1 if the factor is less than 1
};

struct RotaryOptions {
  double base = 10000;
  int64_t features = 0;        // the first features of a head are rotated; 0: all
  int64_t first_position = 0;  // position of the first token
  RotaryScaling scaling = {};
};

// Returns the angles between consecutive positions, in radians, for each pair of `features` features.
std::vector<double> compute_rotary_angles(const RotaryOptions& options, int64_t features);

// Rotates x and returns a contiguous tensor with the same shape and dtype. `x` has shape (batch, length,
// heads, dim) and dtype float32, float64 or bfloat16. Throws ShapeError if the number of rotated features is
// odd or exceeds dim, and for an invalid scaling.
Tensor rotary_embedding(const Tensor& x, const RotaryOptions& options = {});

// Rotates one token in place. `x` has shape (batch, heads, dim), and the token is at position
// options.first_position. In a CUDA graph, each replay increases the position by 1. The call is not recorded
// and allocates no tensor. Throws ShapeError as rotary_embedding(), and if the last dimension of x is not
// contiguous.
void rotate_token_in_place(const Tensor& x, const RotaryOptions& options);

}  // namespace tapeformer
