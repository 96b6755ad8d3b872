// Validation of sequence lengths on the CPU.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// Returns the lengths as a contiguous int64 tensor (batch,) on the CPU. If `lengths` is undefined, every
// length is `longest`. Throws ArgumentError for a wrong shape or dtype and for a length outside [0, longest].
// The message names the op and `length_name`, for example "frame length".
Tensor validate_lengths(const char* op, const char* length_name, const Tensor& lengths, int64_t batch,
                        int64_t longest);

}  // namespace tapeformer
