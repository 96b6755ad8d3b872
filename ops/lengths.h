// Validation of sequence lengths that the host reads.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// Returns the lengths as a contiguous int64 tensor (batch,) on the CPU. Undefined lengths become `longest`.
// Throws ShapeError, with the op and `what` ("frame length"), for a wrong shape or dtype and for a length
// outside [0, longest].
Tensor checked_lengths(const char* op, const char* what, const Tensor& lengths, int64_t batch,
                       int64_t longest);

}  // namespace tapeformer
