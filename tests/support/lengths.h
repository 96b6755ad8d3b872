// A function that creates a tensor with the lengths of sequences.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace tapeformer::test {

// Returns the values as an int64 tensor (values.size(),) on the CPU.
inline Tensor lengths(const std::vector<int64_t>& values) {
  return Tensor::from_vector<int64_t>(values, {static_cast<int64_t>(values.size())});
}

}  // namespace tapeformer::test
