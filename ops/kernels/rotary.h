// Rotation of pairs of features by angles that are proportional to the position (ops/rotary.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/backends.h"
#include "core/dtype.h"
#include "core/host_device.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

struct RotaryShape {
  int64_t batch, length, heads, dim;
  int64_t first_position;  // position of row 0; each replay of a CUDA graph advances it (GraphStep)
  double base;
  bool inverse;  // rotate by the negative angles, for gradients
};

// Returns the angle of pair `pair` at position 1, between 0 and 1.
TAPEFORMER_HOST_DEVICE inline double rotary_frequency(double base, int64_t pair, int64_t dim) {
  return std::exp(-std::log(base) * 2 * static_cast<double>(pair) / static_cast<double>(dim));
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out from x, both (batch, length, heads, dim). `out` may be `x`.
    template <class T>
    void rotate_pairs(Backend, const RotaryShape& shape, AttentionRows<const T> x, AttentionRows<T> out);)

}  // namespace tapeformer
