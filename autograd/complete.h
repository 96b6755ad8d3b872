// A function that reports early that the gradient of a leaf is complete. A gradient function that computes
// the gradients of several leaves can report a leaf before it computes the gradients of the other leaves.
// backward() reports the remaining leaves after the gradient function has returned.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// A gradient function calls report_gradient_complete() after it has added its last contribution to the
// gradient of `leaf`, an input of its op. The call runs BackwardOptions::on_complete for `leaf`, unless an op
// that was recorded before the op of the gradient function also uses `leaf`. If calls of backward() are
// nested, the options of the innermost call are used. Outside of backward(), the call does nothing.
void report_gradient_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
