// Declares report_gradient_complete(). With this function, a gradient function reports that the gradient of a
// leaf is complete before the gradient function returns.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Reports that the running gradient function has added its last term to the gradient of `leaf`. The leaf
// must be an input of the running node. If backward() will not run another node that uses the leaf, this
// function calls BackwardOptions::on_complete for the leaf immediately. If calls of backward() are nested,
// it uses the options of the innermost call. Outside of backward(), it does nothing.
void report_gradient_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
