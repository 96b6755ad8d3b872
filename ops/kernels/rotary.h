// Kernel of rotary position embeddings (ops/rotary.h), which rotates pairs of features by angles that are
// proportional to the position.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/backends.h"
#include "core/base/dtype.h"
#include "core/base/host_device.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

// The scale of the angles: s + (1 - s) / factor with s = constant + per_angle * angle + per_pair * pair,
// limited to [0, 1].
struct RotaryScale {
  double inverse_factor = 1, constant = 1, per_angle = 0, per_pair = 0;

  bool operator==(const RotaryScale&) const = default;
};

struct RotaryShape {
  int64_t batch, length, heads, dim;
  int64_t rotated;         // number of rotated features, an even number; the others are copied
  int64_t first_position;  // position of row 0
  double base;             // the unscaled angle of pair p at position 1 is base^(-2 p / rotated) radians
  RotaryScale scale;
  double amplitude;  // multiplies the rotated features
  bool inverse;      // true: rotate by the negative angles, which computes the gradient
  // If true, row 0 has the position first_position plus the number of earlier replays of the CUDA graph
  // (GraphStep). Only decoding steps set advances_in_graphs.
  bool advances_in_graphs = false;
};

// Returns the angle between consecutive positions in radians.
TAPEFORMER_HOST_DEVICE inline double compute_rotary_angle(double base, const RotaryScale& scale, int64_t pair,
                                                          int64_t rotated) {
  const auto index = static_cast<double>(pair);
  const double angle = std::exp(-std::log(base) * 2 * index / static_cast<double>(rotated));
  const double share = scale.constant + scale.per_angle * angle + scale.per_pair * index;
  const double kept = share > 1 ? 1 : share < 0 ? 0 : share;
  return angle * (kept + (1 - kept) * scale.inverse_factor);
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Rotates the pairs of x (batch, length, heads, dim) and writes the result to `out` of the same shape.
    // `x` and `out` may be the same tensor.
    template <class T>
    void rotate_pairs(Backend, const RotaryShape& shape, AttentionRows<const T> x, AttentionRows<T> out);)

}  // namespace tapeformer
