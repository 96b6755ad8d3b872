// Operand rows of linear attention: rows of a tensor, their features, or rows with one multiplier each.
#pragma once

#include <type_traits>

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

// Rows of one head. Elements beyond `count` and `width` are zero.
template <class S>
struct HeadRows {
  using T = Compute<S>;
  const S* data = nullptr;
  int64_t stride = 0;
  const T* multipliers = nullptr;  // one multiplier per row; null: all are 1
  int64_t count = 0, width = 0;
  FeatureMap map = {};
  bool mapped = false;     // whether at() and at_pack() apply the feature map
  bool is_packed = false;  // whether at_pack() may be called

  __device__ T at(int64_t position, int64_t feature) const {
    if (position >= count || feature >= width) return 0;
    const T x = convert_element<T>(data[position * stride + feature]);
    if (mapped) return feature_of(map, x);
    return multipliers ? multipliers[position] * x : x;
  }
  // Returns whether 16-byte loads can read the rows. Rows must be bfloat16 and aligned, and their stride and
  // width must be multiples of 8 elements.
  __device__ bool has_packs() const {
    if constexpr (!std::is_same_v<S, BFloat16>) return false;
    constexpr int kPack = Pack<S>::kSize;
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kPack == 0 && width % kPack == 0;
  }
  // Writes the elements of a Pack that begins at `feature`, as at() returns them. Requires is_packed.
  __device__ void at_pack(int64_t position, int64_t feature, T (&values)[Pack<S>::kSize]) const {
    constexpr int kPack = Pack<S>::kSize;
    if (position >= count || feature >= width) {
#pragma unroll
      for (int v = 0; v < kPack; ++v) values[v] = 0;
      return;
    }
    load_group<kPack>(data + position * stride + feature, values);
    if (mapped) {
      visit_feature_map(map, [&](auto phi) {
#pragma unroll
        for (int v = 0; v < kPack; ++v) values[v] = phi.template value<DeviceMath>(values[v]);
      });
    } else if (multipliers) {
      const T factor = multipliers[position];
#pragma unroll
      for (int v = 0; v < kPack; ++v) values[v] *= factor;
    }
  }
  // Writes the elements `feature` and `feature` + 1, as at() returns them. `feature` is even.
  __device__ void at_pair(int64_t position, int64_t feature, T (&values)[2]) const {
    const bool loads = is_packed && position < count;
    if (loads) load_group<2>(data + position * stride + feature, values);
    for (int v = 0; v < 2; ++v)
      if (!loads)
        values[v] = at(position, feature + v);
      else if (mapped)
        values[v] = feature_of(map, values[v]);
      else if (multipliers)
        values[v] *= multipliers[position];
  }
};

// Rows of a head as an operand of products, from a position and a feature. kLanes states whether the features
// are the terms of the sums (along_depth) or the rows and columns of a tile (along_tile).
template <Lanes kLanes, class S>
struct RowsOperand {
  using T = Compute<S>;
  const HeadRows<S>& rows;
  int64_t position, feature;

  __device__ bool is_packed() const { return rows.is_packed; }
  __device__ T operator()(int64_t d, int i) const {
    return kLanes == Lanes::along_depth ? rows.at(position + i, feature + d)
                                        : rows.at(position + d, feature + i);
  }
  // Writes 8 elements to `values`: (d, i) to (d + 7, i) for Lanes::along_depth, or (d, i) to (d, i + 7) for
  // Lanes::along_tile.
  __device__ void at_pack(int64_t d, int i, T (&values)[Pack<S>::kSize]) const {
    if constexpr (kLanes == Lanes::along_depth)
      rows.at_pack(position + i, feature + d, values);
    else
      rows.at_pack(position + d, feature + i, values);
  }
};

}  // namespace tapeformer::cuda
