// The feature maps of linear attention (ops/kernels/linear_attention.h) as elementwise functions.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer {

// Returns phi(x) for the feature map phi that `map` selects, as a contiguous tensor. x is float32 or float64.
// The tape keeps only the result.
Tensor apply_feature_map(FeatureMap map, const Tensor& x);

// Replaces x, which is contiguous and float32 or float64, by phi(x). The call is not recorded and allocates
// no memory. Throws ShapeError if x is not contiguous.
void apply_feature_map_in_place(FeatureMap map, const Tensor& x);

}  // namespace tapeformer
