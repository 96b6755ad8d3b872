// Early calls of BackwardOptions::on_complete by gradient functions.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Reports that the running gradient function has accumulated its last term of the gradient of `leaf`, which
// must be an input of the running node. If backward() will run no other node that uses the leaf, calls
// BackwardOptions::on_complete for the leaf now instead of after the gradient function. With nested calls,
// the innermost backward() is meant. Does nothing outside of backward().
void complete(const Tensor& leaf);

}  // namespace tapeformer::tape
