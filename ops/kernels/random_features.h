// Random features of attention (ops/random_features.h): functions of the products u = scale * projection x,
// where x is a row of (rows, dim).
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

enum class RandomFeatureMap {
  softmax_query,  // exp(u - max(u))
  softmax_key,    // exp(u - |scale * x|^2 / 2)
  relu,           // max(u, 0) + offset
};

struct RandomFeatureShape {
  int64_t rows = 0, dim = 0, features = 0;
  RandomFeatureMap map = RandomFeatureMap::softmax_query;
  double scale = 1, offset = 0;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Replaces the products u in y (rows, features) by features. Only softmax_key reads x (rows, dim).
    template <class T>
    void random_features_forward(Backend, const RandomFeatureShape& shape, const T* x, T* y);

    // Computes gu (rows, features), the gradient of u, from y and the gradient g of y. Sets gx (rows, dim) to
    // the part of the gradient of x that does not pass through u. The maximum in softmax_query is treated as
    // a constant.
    template <class T> void random_features_backward(Backend, const RandomFeatureShape& shape, const T* x,
                                                     const T* y, const T* g, T* gu, T* gx);

)

}  // namespace tapeformer
