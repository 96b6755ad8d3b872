// A table of op cases. A case consists of a function of tensors and its inputs. Tests use the table for
// gradient checks, to compare float32 with float64, and to compare a real or emulated CUDA device with the
// CPU.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapeformer::test {

struct OpCase {
  std::string name;
  std::function<Tensor(const std::vector<Tensor>&)> function;
  // Arguments of `function`. compute_result_and_gradients() copies all inputs to the device, including
  // integers such as indices, and converts floating-point inputs from float64 to the tested dtype.
  std::vector<Tensor> inputs;
  bool is_large = false;  // too large for the gradient check
  // Factor by which the float32 tolerance of the op is multiplied. If an op computes a sum of n terms that
  // nearly cancel, tolerance_factor is sqrt(n), because rounding errors grow like sqrt(n) (Higham and Mary
  // 2019, "A new approach to probabilistic rounding error analysis").
  double tolerance_factor = 1;
  std::vector<size_t> optional_inputs = {};  // indices of the inputs that may be undefined
  // Whether results and gradients are rounded differently for different numbers of threads
  // (docs/numerics.md).
  bool depends_on_threads = false;
};

std::vector<OpCase> make_op_table();
// Adds the cases of the attention ops that support bfloat16.
void add_attention_cases(std::vector<OpCase>& table);
// Adds the cases of the attention ops that do not support bfloat16.
void add_float_attention_cases(std::vector<OpCase>& table);
// Adds the cases of short convolutions, norms without mean, gated activations and parts of tensors.
void add_conv_and_norm_cases(std::vector<OpCase>& table);

// Computes an op on a device. Returns the result, followed by the gradients of the floating-point inputs, as
// tensors on the CPU. The floating-point inputs are converted to `dtype`. If `only` is given, only the input
// with this index needs a gradient.
std::vector<Tensor> compute_result_and_gradients(const OpCase& op, Device device, DType dtype,
                                                 std::optional<size_t> only = {});

}  // namespace tapeformer::test
