#include "ops/kernels/random_features.h"

#include "core/cuda/kernel.h"
#include "core/instances.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

// Calls f(column) for the columns of a row that belong to this lane.
template <class F>
__device__ void for_lane_columns(int64_t columns, F&& f) {
  for (int64_t i = threadIdx.x % kWarpSize; i < columns; i += kWarpSize) f(i);
}

// Returns the number that the feature map subtracts from u before exp. x is a row of the input, and u holds
// the products scale * projection x.
template <class T>
__device__ T exponent_shift(const RandomFeatureShape& s, const T* x, const T* u) {
  if (s.map == RandomFeatureMap::softmax_key) {
    T squares = 0;
    for_lane_columns(s.dim, [&](int64_t i) { squares += x[i] * x[i]; });
    return warp_reduce<Plus>(squares) * static_cast<T>(s.scale * s.scale / 2);
  }
  T largest = -INFINITY;
  for_lane_columns(s.features, [&](int64_t i) { largest = Maximum::apply(largest, u[i]); });
  return warp_reduce<Maximum>(largest);
}

// Computes one row per warp.
template <class T>
__global__ void forward_kernel(RandomFeatureShape s, const T* x, T* y) {
  for (int64_t row = warp_of_grid(); row < s.rows; row += warps_of_grid()) {
    T* const u = y + row * s.features;
    if (s.map == RandomFeatureMap::relu) {
      const T offset = static_cast<T>(s.offset);
      for_lane_columns(s.features, [&](int64_t i) { u[i] = (u[i] < 0 ? T{0} : u[i]) + offset; });
      continue;
    }
    const T shift = exponent_shift(s, x + row * s.dim, u);
    for_lane_columns(s.features, [&](int64_t i) { u[i] = std::exp(u[i] - shift); });
  }
}

template <class T>
__global__ void backward_kernel(RandomFeatureShape s, const T* x, const T* y, const T* g, T* gu, T* gx) {
  for (int64_t row = warp_of_grid(); row < s.rows; row += warps_of_grid()) {
    const int64_t first = row * s.features;
    const T offset = static_cast<T>(s.offset);
    const bool is_relu = s.map == RandomFeatureMap::relu;
    T total = 0;
    for_lane_columns(s.features, [&](int64_t i) {
      const T y_i = y[first + i];
      const T derivative = is_relu ? (y_i > offset ? T{1} : T{0}) : y_i;
      gu[first + i] = derivative * g[first + i];
      total += gu[first + i];
    });
    total = warp_reduce<Plus>(total);
    const T factor =
        s.map == RandomFeatureMap::softmax_key ? -total * static_cast<T>(s.scale * s.scale) : T{0};
    for_lane_columns(s.dim, [&](int64_t i) { gx[row * s.dim + i] = factor * x[row * s.dim + i]; });
  }
}

}  // namespace

template <class T>
void random_features_forward(Backend, const RandomFeatureShape& s, const T* x, T* y) {
  launch(forward_kernel<T>, over_warp_rows(s.rows), s, x, y);
}

template <class T>
void random_features_backward(Backend, const RandomFeatureShape& s, const T* x, const T* y, const T* g, T* gu,
                              T* gx) {
  launch(backward_kernel<T>, over_warp_rows(s.rows), s, x, y, g, gu, gx);
}

template <class T>
struct RandomFeatureKernels {
  inline static const Instances all{&random_features_forward<T>, &random_features_backward<T>};
};
template struct RandomFeatureKernels<float>;
template struct RandomFeatureKernels<double>;

}  // namespace tapeformer::cuda
