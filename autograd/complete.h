// Early calls of BackwardOptions::on_complete by gradient functions.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// Reports that the running gradient function has accumulated the last term of the gradient of `leaf`. If no
// earlier node of the innermost backward() uses the leaf, calls BackwardOptions::on_complete for the leaf now
// instead of after the gradient function. `leaf` must be an input of the node. Does nothing outside of
// backward().
void complete(const Tensor& leaf);

}  // namespace tapeformer::tape
