// A function with which gradient functions can call BackwardOptions::on_complete early.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Called by a gradient function that has added its last term to the gradient of `leaf`. `leaf` must be an
// input of the running node. If backward() will run no other node that uses the leaf, calls
// BackwardOptions::on_complete for the leaf now, and not only after the gradient function returns. If calls
// of backward() are nested, uses the options of the innermost call. Does nothing outside of backward().
void report_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
