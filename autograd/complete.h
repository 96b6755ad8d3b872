// A function with which a gradient function reports early that the gradient of a leaf is complete, while it
// still computes other gradients. Leaves that are not reported early are reported by backward() when the
// gradient function has returned.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Called by a gradient function that has computed its last contribution to the gradient of `leaf`, which must
// be an input of the op. Calls BackwardOptions::on_complete for the leaf, unless an earlier recorded op
// also uses the leaf. If calls of backward() are nested, uses the options of the innermost call. Does nothing
// outside of backward().
void report_gradient_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
