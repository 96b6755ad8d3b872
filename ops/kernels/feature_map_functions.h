// The feature maps of linear attention as function objects for both backends. The objects have the interface
// of ops/kernels/elementwise_functions.h, and propagate NaN. derivative(x, y) depends only on y, so backward
// kernels do not load x. In CPU kernels, T can be a vector type.
#pragma once

#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer {

struct EluPlusOne {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    const T e = Math::exp_nonpositive(x);
    return x > T{} ? x + 1 : e;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    const T one = T{} + 1;
    return y > one ? one : y;
  }
};
struct SquaredRelu {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return x < T{} ? T{} : x * x;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    return 2 * Math::sqrt(y);
  }
};

// Calls f with the function object of the feature map, and returns the result of f.
template <class F>
TAPEFORMER_HOST_DEVICE auto visit_feature_map(FeatureMap map, F&& f) {
  switch (map) {
    case FeatureMap::elu_plus_one:
      return f(EluPlusOne{});
    case FeatureMap::relu:
      return f(Relu{});
    case FeatureMap::squared_relu:
      return f(SquaredRelu{});
    case FeatureMap::exponential:
      return f(Exp{});
    case FeatureMap::identity:
      break;
  }
  return f(Identity{});
}

}  // namespace tapeformer
