// Kernels of random features (ops/random_features.h). A matrix product first computes u = scale * projection
// x for each row x of dim elements, where `projection` is a matrix (features, dim). The kernels then compute
// the features from u.
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
  RandomFeatureMap feature_map = RandomFeatureMap::softmax_query;
  double scale = 1, offset = 0;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes features in place: y (rows, features) contains the products u at the start, and the features
    // at the end. The kernel reads x (rows, dim) only for softmax_key.
    template <class T>
    void random_features_forward(Backend, const RandomFeatureShape& shape, const T* x, T* y);

    // Computes gu (rows, features), the gradient of u, from the features y and their gradient g. Also
    // computes gx (rows, dim), the gradient of x from the term |scale * x|^2 / 2, which is 0 except for
    // softmax_key. The maximum in softmax_query is treated as a constant.
    template <class T> void random_features_backward(Backend, const RandomFeatureShape& shape, const T* x,
                                                     const T* y, const T* g, T* gu, T* gx);

)

}  // namespace tapeformer
