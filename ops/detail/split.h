// Splits a shape at one dimension, for ops that reduce this dimension.
#pragma once

#include "core/base/shape.h"

namespace tapeformer {

// A shape in the form (outer_size, size, inner_size), where `size` is the reduced dimension.
struct ReductionShape {
  int64_t outer_size = 1, size = 1, inner_size = 1;
  Shape keep_dim_shape;  // shape with size 1 in the reduced dimension
  Shape squeezed_shape;  // shape without the reduced dimension
};

inline ReductionShape make_reduction_shape(const Shape& shape, int dim) {
  ReductionShape result;
  result.keep_dim_shape = shape;
  result.keep_dim_shape[dim] = 1;
  result.size = shape[dim];
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < dim) result.outer_size *= shape[i];
    if (i > dim) result.inner_size *= shape[i];
    if (i != dim) result.squeezed_shape.append(shape[i]);
  }
  return result;
}

}  // namespace tapeformer
