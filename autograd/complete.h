// A function that reports early that the gradient of a leaf is complete. A gradient function that computes
// the gradients of several leaves can report one leaf before it computes the gradients of the other leaves.
// backward() reports the remaining leaves after the gradient function has returned.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Calls BackwardOptions::on_complete for `leaf`, unless an op that was recorded earlier also uses the leaf. A
// gradient function calls report_gradient_complete() after it has added its last contribution to the gradient
// of `leaf`, which must be an input of the op. If calls of backward() are nested, uses the options of the
// innermost call. Does nothing outside of backward().
void report_gradient_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
