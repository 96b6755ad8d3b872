// The table of op cases. A row is a function of float64 tensors with inputs for it. The rows drive the
// gradient checks, the comparison of float32 with float64, and the comparison of the CPU with a real or
// emulated CUDA device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapeformer::test {

struct OpCase {
  std::string name;
  std::function<Tensor(const std::vector<Tensor>&)> function;
  std::vector<Tensor>
      inputs;          // floating inputs are float64; indices are inputs too, so that they move to the device
  bool large = false;  // too large for the gradient check
  // The multiplier of the tolerance between backends in float32, for ops with long chains of sums.
  double roundings = 1;
};

std::vector<OpCase> op_table();
// Adds the rows of the attention ops.
void add_attention(std::vector<OpCase>& table);

// Returns the result of an op on a device and the gradients of its floating inputs, copied to the CPU.
std::vector<Tensor> outcome_of(const OpCase& op, Device device, DType dtype);

}  // namespace tapeformer::test
