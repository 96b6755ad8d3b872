// Lengths of sequences as a tensor.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace tapeformer::test {

// Returns an int64 tensor (values.size(),).
inline Tensor lengths(const std::vector<int64_t>& values) {
  return Tensor::from<int64_t>(values, {static_cast<int64_t>(values.size())});
}

}  // namespace tapeformer::test
