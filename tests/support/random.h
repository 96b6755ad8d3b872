// Functions that return random tensors on the CPU for tests. Equal arguments give equal tensors.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/random/rng.h"
#include "core/tensor.h"

namespace tapeformer::test {

// Returns a tensor with standard normal elements.
inline Tensor normal(const Shape& shape, int salt = 0, DType dtype = DType::float64) {
  const Tensor tensor = Tensor::empty(shape, DType::float64);
  const RandomStream stream(1234, "test", static_cast<uint64_t>(salt));
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  return dtype == DType::float64 ? tensor : tensor.to(dtype);
}

// Returns a tensor with elements that are uniform in [low, high).
inline Tensor uniform(const Shape& shape, double low, double high, int salt = 0,
                      DType dtype = DType::float64) {
  const Tensor tensor = Tensor::empty(shape, DType::float64);
  const RandomStream stream(4321, "test", static_cast<uint64_t>(salt));
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<double>()[i] = low + (high - low) * stream.uniform(static_cast<uint64_t>(i));
  return dtype == DType::float64 ? tensor : tensor.to(dtype);
}

// Returns a float64 tensor whose elements have magnitudes in [0.1, 1.1). Gradient checks use tensors without
// elements near 0 for functions with a kink at 0.
inline Tensor away_from_zero(const Shape& shape, int salt = 0) {
  const Tensor tensor = uniform(shape, 0.1, 1.1, salt);
  const RandomStream sign(99, "sign", static_cast<uint64_t>(salt));
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (sign.uniform(static_cast<uint64_t>(i)) < 0.5) tensor.data<double>()[i] *= -1;
  return tensor;
}

// Returns the larger of `worst` and `error`, or infinity if `error` is NaN.
inline double max_error(double worst, double error) {
  if (std::isnan(error)) return INFINITY;
  return std::max(worst, error);
}

// Returns the maximum absolute difference of two tensors of the same shape, or infinity if the shapes differ
// or a value is NaN.
inline double max_difference(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
  const auto x = a.to_vector(), y = b.to_vector();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = max_error(worst, x[i] == y[i] ? 0 : std::abs(x[i] - y[i]));
  return worst;
}

}  // namespace tapeformer::test
