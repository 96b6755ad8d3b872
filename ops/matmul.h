// Matrix products.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// a (batch…, m, k) times b (batch…, k, n) gives (batch…, m, n); with a flag the last two dimensions of that
// side are exchanged. Leading dimensions broadcast. Errors: ShapeError when the inner sizes differ.
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});

}  // namespace tapeformer
