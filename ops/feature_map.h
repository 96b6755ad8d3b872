// The feature maps of linear attention (ops/kernels/linear_attention.h) as elementwise functions.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer {

// Returns phi(x) as a contiguous tensor with the shape of x. x is float32 or float64.
Tensor apply_feature_map(FeatureMap map, const Tensor& x);

// Replaces x, which is contiguous and float32 or float64, by phi(x). The call is not recorded and allocates
// no memory.
void apply_feature_map_in_place(FeatureMap map, const Tensor& x);

}  // namespace tapeformer
