// Operand rows of linear attention: rows of a tensor, their features, or rows with one multiplier each.
#pragma once

#include "core/cuda/kernel.h"
#include "ops/kernels/feature_map_functions.h"

namespace tapeformer::cuda {

// Returns phi(x).
template <class T>
__device__ T feature_of(FeatureMap map, T x) {
  return visit_feature_map(map, [=](auto phi) { return phi.template value<DeviceMath>(x); });
}
// Returns phi'(x) from y = phi(x).
template <class T>
__device__ T feature_derivative(FeatureMap map, T y) {
  return visit_feature_map(map, [=](auto phi) { return phi.template derivative<DeviceMath>(y, y); });
}

// Rows of one head. Elements beyond `count` and `width` are zero.
template <class S>
struct HeadRows {
  using T = Compute<S>;
  const S* data = nullptr;
  int64_t stride = 0;
  const T* multipliers = nullptr;  // one multiplier per row; null: all are 1
  int64_t count = 0, width = 0;
  FeatureMap map = {};
  bool mapped = false;

  __device__ T at(int64_t position, int64_t feature) const {
    if (position >= count || feature >= width) return 0;
    const T x = convert_element<T>(data[position * stride + feature]);
    if (mapped) return feature_of(map, x);
    return multipliers ? multipliers[position] * x : x;
  }
  // Returns the derivative of phi at an element.
  __device__ T derivative(int64_t position, int64_t feature) const {
    return feature_derivative(map, at(position, feature));
  }
};

}  // namespace tapeformer::cuda
