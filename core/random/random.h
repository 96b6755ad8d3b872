// Tensors of random numbers. Element i is a pure function of the random stream (core/random/rng.h) and i. The
// same call therefore gives the same tensor on every device and with any number of threads.
#pragma once

#include "core/random/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// Returns a tensor with standard normal elements. Throws ShapeError if `dtype` is not a floating dtype.
// Example: randn({2, 3}, {seed, "weights"}).
Tensor randn(const Shape& shape, const RandomStream& stream, DType dtype = DType::float32,
             Device device = kCpu);

// Returns a tensor whose elements are uniformly distributed between `low` and `high`. The rounding to
// `dtype` can make an element equal to `low` or `high`. Throws ShapeError if `dtype` is not a floating dtype,
// or if `low` is greater than `high`.
Tensor uniform(const Shape& shape, double low, double high, const RandomStream& stream,
               DType dtype = DType::float32, Device device = kCpu);

}  // namespace tapeformer
