// Lengths of the sequences of a batch, which the host plans by.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// The lengths as a contiguous int64 (batch,) on the CPU; undefined ones are `longest`. Throws ShapeError,
// naming the op and what they are lengths of ("frame length"), for another shape or dtype and for one that is
// not in [0, longest].
Tensor checked_lengths(const char* op, const char* what, const Tensor& lengths, int64_t batch,
                       int64_t longest);

}  // namespace tapeformer
