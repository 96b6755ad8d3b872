// One row per op: a function of float64 tensors and inputs for it. The rows drive the gradient checks, the
// comparison of float32 with float64, and that of the CPU with a CUDA device, emulated or real.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapeformer::test {

struct OpCase {
  std::string name;
  std::function<Tensor(const std::vector<Tensor>&)> function;
  std::vector<Tensor> inputs;  // floating ones are float64; indices too are inputs, so that they can move
  bool large = false;          // too large for the gradient check
  // How many times the usual difference two machines may have in float32, where an op is a long chain of
  // sums.
  double roundings = 1;
};

std::vector<OpCase> op_table();
// The part of it with the attention ops.
void add_attention(std::vector<OpCase>& table);

// The result of an op on a device and the gradients of its floating inputs, brought back.
std::vector<Tensor> outcome_of(const OpCase& op, Device device, DType dtype);

}  // namespace tapeformer::test
