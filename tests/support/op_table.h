// Table of op cases. A case is a function of float64 tensors together with its inputs. The table drives the
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
  // Floating inputs are float64. Indices are inputs, too, so that they move to the device.
  std::vector<Tensor> inputs;
  bool large = false;  // too large for the gradient check
  // Factor of the float32 tolerance: sqrt(n) if the result depends on sums of n terms that exceed the result.
  // The rounding errors of such sums grow as sqrt(n) with high probability (Higham and Mary 2019, "A new
  // approach to probabilistic rounding error analysis").
  double roundings = 1;
};

std::vector<OpCase> op_table();
// Adds the cases of the attention ops.
void add_attention(std::vector<OpCase>& table);
// Adds the cases of random features, which take no bfloat16.
void add_random_features(std::vector<OpCase>& table);

// Returns the result of an op on a device and the gradients of its floating inputs, copied to the CPU.
std::vector<Tensor> outcome_of(const OpCase& op, Device device, DType dtype);

}  // namespace tapeformer::test
