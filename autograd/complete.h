// Early reports of complete gradients. A gradient function that computes the gradients of several leaves can
// report that the gradient of one leaf is complete before it computes the other gradients. After the gradient
// function has returned, backward() reports the leaves that the function has not reported.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Calls BackwardOptions::on_complete for `leaf`, unless an op that was recorded earlier also uses the leaf. A
// gradient function calls report_gradient_complete() after it has added its last contribution to the gradient
// of `leaf`, which must be an input of the op. If calls of backward() are nested, uses the options of the
// innermost call. Does nothing outside of backward().
void report_gradient_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
