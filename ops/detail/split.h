// Splits a shape at one dimension, for ops that reduce this dimension.
#pragma once

#include "core/shape.h"

namespace tapeformer {

// A shape in the form (outer, size, inner), where `size` is the reduced dimension.
struct SplitShape {
  int64_t outer = 1, size = 1, inner = 1;
  Shape kept_shape;      // shape with size 1 in the reduced dimension
  Shape squeezed_shape;  // shape without the reduced dimension
};

inline SplitShape make_split_shape(const Shape& shape, int dim) {
  SplitShape split;
  split.kept_shape = shape;
  split.kept_shape[dim] = 1;
  split.size = shape[dim];
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < dim) split.outer *= shape[i];
    if (i > dim) split.inner *= shape[i];
    if (i != dim) split.squeezed_shape.append(shape[i]);
  }
  return split;
}

}  // namespace tapeformer
