// Functions that load and store the rows of one head in the kernels of linear attention. The load functions
// can apply the feature map phi to a row, or multiply a row by a factor.
#pragma once

#include <bit>

#include "core/cuda/matrix_product.h"
#include "ops/cuda/tile_product.h"
#include "ops/kernels/feature_map_functions.h"

namespace tapeformer::cuda {

// Returns phi(x) for the feature map phi that `map` selects.
template <class T>
__device__ T apply_feature_map(FeatureMap map, T x) {
  return visit_feature_map(map, [=](auto phi) { return phi.template value<DeviceMath>(x); });
}
// Returns the derivative phi'(x), given y = phi(x).
template <class T>
__device__ T compute_feature_derivative(FeatureMap map, T y) {
  return visit_feature_map(map, [=](auto phi) { return phi.template derivative<DeviceMath>(y, y); });
}

// The elements of a Pack<S>, converted to the compute type.
template <class S>
struct ConvertedPack {
  Compute<S> values[Pack<S>::kSize];

  __device__ void multiply(Compute<S> factor) {
#pragma unroll
    for (Compute<S>& value : values) value *= factor;
  }
};
// Converts packed pairs of bfloat16 numbers to float.
__device__ inline ConvertedPack<BFloat16> unpack_pairs(const Pack<uint32_t>& pairs) {
  ConvertedPack<BFloat16> result;
#pragma unroll
  for (int p = 0; p < Pack<uint32_t>::kSize; ++p) {
    result.values[2 * p] = unpack_first(pairs.values[p]);
    result.values[2 * p + 1] = unpack_second(pairs.values[p]);
  }
  return result;
}
// Replaces each element x of `pack` by phi(x).
__device__ inline void apply_feature_map(FeatureMap map, ConvertedPack<BFloat16>& pack) {
  visit_feature_map(map, [&](auto phi) {
#pragma unroll
    for (float& value : pack.values) value = phi.template value<FastDeviceMath>(value);
  });
}

// The rows of one head. If use_feature_map is true, the load functions return phi(x) for each element x of
// the rows. Otherwise, the load functions multiply row `position` by multipliers[position].
template <class S>
struct HeadRows : StridedRows<S> {
  using T = Compute<S>;
  using StridedRows<S>::data, StridedRows<S>::stride, StridedRows<S>::contains, StridedRows<S>::can_load_pack;
  const T* multipliers = nullptr;  // (count,); if null, all multipliers are 1
  FeatureMap feature_map = {};
  bool use_feature_map = false;

  // Returns element `feature` of row `position`, after the feature map or the multiplier is applied. Returns
  // 0 if `position` >= `count` or `feature` >= `width`.
  __device__ T load(int64_t position, int64_t feature) const {
    if (!contains(position, feature)) return 0;
    const T x = convert_element<T>(data[position * stride + feature]);
    if (use_feature_map) return apply_feature_map(feature_map, x);
    return multipliers ? multipliers[position] * x : x;
  }
  // Returns load() of each element of the Pack that begins at `feature`. Requires can_load_pack.
  __device__ ConvertedPack<S> load_pack(int64_t position, int64_t feature) const {
    if (!contains(position, feature)) return {};
    const Pack<S> pack = Pack<S>::load(data + position * stride + feature);
    ConvertedPack<S> result = unpack_pairs(std::bit_cast<Pack<uint32_t>>(pack));
    if (use_feature_map)
      apply_feature_map(feature_map, result);
    else if (multipliers)
      result.multiply(multipliers[position]);
    return result;
  }
  // Sets `values` to load(position, feature) and load(position, feature + 1). `feature` must be even and less
  // than `width`.
  __device__ void load_pair(int64_t position, int64_t feature, T (&values)[2]) const {
    if (can_load_pack && position >= this->count) {
      values[0] = values[1] = 0;
      return;
    }
    if (can_load_pack) load_group<2>(data + position * stride + feature, values);
    for (int v = 0; v < 2; ++v)
      if (!can_load_pack)
        values[v] = load(position, feature + v);
      else if (use_feature_map)
        values[v] = apply_feature_map(feature_map, values[v]);
      else if (multipliers)
        values[v] *= multipliers[position];
  }
};

// Writes `values` to row[feature] and row[feature + 1]. `feature` must be less than `width`, the number of
// elements of the row. If `feature` is the last element, values[1] is not written.
template <class S, class T>
__device__ void store_pair(S* row, int64_t feature, int64_t width, const T (&values)[2]) {
  S* const target = row + feature;
  if (feature + 1 < width && reinterpret_cast<uintptr_t>(target) % (2 * sizeof(S)) == 0)
    return store_group<2>(target, values);
  target[0] = convert_element<S>(values[0]);
  if (feature + 1 < width) target[1] = convert_element<S>(values[1]);
}

}  // namespace tapeformer::cuda
