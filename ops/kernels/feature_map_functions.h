// The feature maps of linear attention as function objects with the interface of
// ops/kernels/elementwise_functions.h, shared by both backends. In CPU kernels, T may be a vector.
// derivative() depends only on y = phi(x). NaN propagates.
#pragma once

#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer {

struct EluPlusOne {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    const T e = Math::exp_of_negative(x);
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

// Returns f(function), where `function` is the function object of the feature map.
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
      break;
  }
  return f(Exp{});
}

}  // namespace tapeformer
