// Rows of linear attention: operands, which are rows of a tensor, their features, or rows with one multiplier
// each, and results.
#pragma once

#include "core/cuda/kernel.h"
#include "ops/cuda/tile_product.h"
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

// The elements of a Pack of S in the compute type.
template <class S>
struct ComputedPack {
  Compute<S> values[Pack<S>::kSize];
};

// Rows of one head, or functions of them. Elements beyond `count` and `width` are zero.
template <class S>
struct HeadRows : PlainRows<S> {
  using T = Compute<S>;
  using PlainRows<S>::data, PlainRows<S>::stride, PlainRows<S>::contains, PlainRows<S>::is_packed;
  const T* multipliers = nullptr;  // one multiplier per row; null: all are 1
  FeatureMap map = {};
  bool mapped = false;  // whether at(), pack() and at_pair() apply the feature map

  __device__ T at(int64_t position, int64_t feature) const {
    if (!contains(position, feature)) return 0;
    const T x = convert_element<T>(data[position * stride + feature]);
    if (mapped) return feature_of(map, x);
    return multipliers ? multipliers[position] * x : x;
  }
  // Returns the values of at() for the elements of the Pack that begins at `feature`. Requires is_packed.
  __device__ ComputedPack<S> pack(int64_t position, int64_t feature) const {
    constexpr int kPack = Pack<S>::kSize;
    ComputedPack<S> result = {};
    if (!contains(position, feature)) return result;
    load_group<kPack>(data + position * stride + feature, result.values);
    if (mapped) {
      visit_feature_map(map, [&](auto phi) {
#pragma unroll
        for (int v = 0; v < kPack; ++v) result.values[v] = phi.template value<DeviceMath>(result.values[v]);
      });
    } else if (multipliers) {
      const T factor = multipliers[position];
#pragma unroll
      for (int v = 0; v < kPack; ++v) result.values[v] *= factor;
    }
    return result;
  }
  // Writes the elements `feature` and `feature` + 1, as at() returns them. `feature` is even.
  __device__ void at_pair(int64_t position, int64_t feature, T (&values)[2]) const {
    if (is_packed && position >= this->count) {
      values[0] = values[1] = 0;
      return;
    }
    if (is_packed) load_group<2>(data + position * stride + feature, values);
    for (int v = 0; v < 2; ++v)
      if (!is_packed)
        values[v] = at(position, feature + v);
      else if (mapped)
        values[v] = feature_of(map, values[v]);
      else if (multipliers)
        values[v] *= multipliers[position];
  }
};

// Writes elements `feature` and `feature` + 1 of a row. Elements at or after `width` are not written.
template <class S, class T>
__device__ void store_pair(S* row, int64_t feature, int64_t width, const T (&values)[2]) {
  S* const target = row + feature;
  if (feature + 1 < width && reinterpret_cast<uintptr_t>(target) % (2 * sizeof(S)) == 0)
    return store_group<2>(target, values);
  target[0] = convert_element<S>(values[0]);
  if (feature + 1 < width) target[1] = convert_element<S>(values[1]);
}

}  // namespace tapeformer::cuda
