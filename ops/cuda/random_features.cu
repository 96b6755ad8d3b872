#include "ops/kernels/random_features.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

// Distributes the columns over the lanes of a warp. Calls f(column) for each column of the calling lane.
template <class F>
__device__ void for_each_lane_column(int64_t columns, F&& f) {
  for (int64_t i = threadIdx.x % kWarpSize; i < columns; i += kWarpSize) f(i);
}

// Returns the number that the softmax feature maps subtract from the elements of `u` before exp(). This
// number is |scale * x|² / 2 for keys, and the maximum of `u` for queries. `x`, with shape (dim,), is a row
// of the input. `u`, with shape (features,), is the product of the projection matrix and `x`, times `scale`.
// All lanes of a warp must call compute_exponent_shift().
template <class T>
__device__ T compute_exponent_shift(const RandomFeatureShape& s, const T* x, const T* u) {
  if (s.feature_map == RandomFeatureMap::softmax_key) {
    T squares = 0;
    for_each_lane_column(s.dim, [&](int64_t i) { squares += x[i] * x[i]; });
    return warp_reduce<Plus>(squares) * static_cast<T>(s.scale * s.scale / 2);
  }
  T largest = -INFINITY;
  for_each_lane_column(s.features, [&](int64_t i) { largest = Maximum::apply(largest, u[i]); });
  return warp_reduce<Maximum>(largest);
}

// Computes the features of the rows of x. Each warp processes one row at a time. On input, the rows of y are
// the products of the projection matrix and the rows of x, times `scale`.
template <class T>
__global__ void forward_kernel(RandomFeatureShape s, const T* x, T* y) {
  for (int64_t row = first_warp_row(); row < s.rows; row += warp_row_stride()) {
    T* const u = y + row * s.features;
    if (s.feature_map == RandomFeatureMap::relu) {
      const T offset = static_cast<T>(s.offset);
      for_each_lane_column(s.features, [&](int64_t i) { u[i] = (u[i] < 0 ? T{0} : u[i]) + offset; });
      continue;
    }
    const T shift = compute_exponent_shift(s, x + row * s.dim, u);
    for_each_lane_column(s.features, [&](int64_t i) { u[i] = std::exp(u[i] - shift); });
  }
}

// Computes gu, the gradient with respect to the products of the projection matrix and the rows of x, times
// `scale`. Also computes the part of gx that does not come from these products. Each warp processes one row
// at a time.
template <class T>
__global__ void backward_kernel(RandomFeatureShape s, const T* x, const T* y, const T* g, T* gu, T* gx) {
  for (int64_t row = first_warp_row(); row < s.rows; row += warp_row_stride()) {
    const int64_t first = row * s.features;
    const T offset = static_cast<T>(s.offset);
    const bool is_relu = s.feature_map == RandomFeatureMap::relu;
    T total = 0;
    for_each_lane_column(s.features, [&](int64_t i) {
      const T y_i = y[first + i];
      const T derivative = is_relu ? (y_i > offset ? T{1} : T{0}) : y_i;
      gu[first + i] = derivative * g[first + i];
      total += gu[first + i];
    });
    total = warp_reduce<Plus>(total);
    const T factor =
        s.feature_map == RandomFeatureMap::softmax_key ? -total * static_cast<T>(s.scale * s.scale) : T{0};
    for_each_lane_column(s.dim, [&](int64_t i) { gx[row * s.dim + i] = factor * x[row * s.dim + i]; });
  }
}

}  // namespace

template <class T>
void random_features_forward(Backend, const RandomFeatureShape& s, const T* x, T* y) {
  launch(forward_kernel<T>, make_warp_row_launch(s.rows), s, x, y);
}

template <class T>
void random_features_backward(Backend, const RandomFeatureShape& s, const T* x, const T* y, const T* g, T* gu,
                              T* gx) {
  launch(backward_kernel<T>, make_warp_row_launch(s.rows), s, x, y, g, gu, gx);
}

template <class T>
struct RandomFeatureKernels {
  inline static const FunctionInstances all{&random_features_forward<T>, &random_features_backward<T>};
};
template struct RandomFeatureKernels<float>;
template struct RandomFeatureKernels<double>;

}  // namespace tapeformer::cuda
