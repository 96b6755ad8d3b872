// Matrix products.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// Returns the product of a (batch…, m, k) and b (batch…, k, n), with shape (batch…, m, n). Each flag in
// `options` transposes the last two dimensions of one operand before the product. Leading dimensions
// broadcast. Throws ShapeError if the inner sizes differ.
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});

}  // namespace tapeformer
