// A function that reports a complete gradient before the gradient function returns.
#pragma once

#include "core/tensor.h"

namespace tapeformer::tape {

// A gradient function may call this function after it has added its last term to the gradient of `leaf`,
// which must be an input of the running node. If backward() will not run another node that uses the leaf,
// calls BackwardOptions::on_complete for the leaf immediately. If calls of backward() are nested, uses the
// options of the innermost call. Does nothing outside of backward().
void report_complete(const Tensor& leaf);

}  // namespace tapeformer::tape
