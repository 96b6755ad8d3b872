// Kernels of random features (ops/random_features.h). For each row x of dim elements, a matrix product
// first computes u = scale * projection * x, where `projection` is a matrix (features, dim). The kernels then
// compute the features from u.
#pragma once

#include <cstdint>

#include "core/base/backends.h"

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

    // Writes the gradient of u to gu (rows, features). `y` contains the features, and g is the gradient of y.
    // Also writes to gx (rows, dim) the part of the gradient of x that does not come from u. For softmax_key,
    // this part is the gradient through |scale * x|^2 / 2. For the other feature maps, it is 0. The maximum
    // in softmax_query is treated as a constant.
    template <class T> void random_features_backward(Backend, const RandomFeatureShape& shape, const T* x,
                                                     const T* y, const T* g, T* gu, T* gx);

)

}  // namespace tapeformer
