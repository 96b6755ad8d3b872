// Printing of tensors.
#pragma once

#include <iosfwd>

#include "core/tensor.h"

namespace tapeformer {

// Writes the elements in nested brackets, one row per line, then the shape and the dtype. A tensor of
// more than 1000 elements shows the first and last three indices of each dimension longer than six.
// Waits for the device of the tensor.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tapeformer
