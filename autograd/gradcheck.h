// A test function that compares the gradient of an op with central differences, in float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

struct GradcheckResult {
  // The largest relative error of all inputs. The relative error of an input is the maximum of |analytic -
  // numeric| divided by the maximum of |analytic|, |numeric| and GradcheckOptions::min_denominator. Each
  // maximum is taken over all compared elements of the input.
  double max_relative_error = 0;
  int worst_input = -1;  // index of the input with this error; -1 if max_relative_error is 0
  // If an analytic or numeric gradient is not finite, the message contains the index of the element and both
  // gradients, and max_relative_error is infinity. Otherwise the message is empty.
  std::string message;
};

struct GradcheckOptions {
  // Step of the central differences. Each element is changed by plus and minus `step` and 2 * `step`.
  double step = 1e-5;
  // A second step for elements whose central difference does not match the gradient, for example because the
  // function has a kink within 2 * `step`. The difference that is closer to the gradient is used. If 0, there
  // is no second step.
  double kink_step = 0;
  // If not 0, only every n-th element of an input is compared. n is the smallest integer that is at least
  // numel / max_elements (rounded down) and coprime with the size of the last dimension.
  int64_t max_elements = 0;
  double min_denominator = 1e-8;  // lower bound of the denominator of the relative error
};

// Compares the gradients of the scalar sum(f(inputs) * cotangent) with central differences. The cotangent is
// random. The result of `f` is a float64 tensor of any shape. Inputs are float64 tensors, or tensors of an
// integer dtype, which are constants.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

// Compares the gradients of leaves that f() uses, such as the parameters of a module, in the same way. The
// leaves are contiguous float64 tensors on the CPU. The function changes their elements and restores them,
// except if f() throws. It replaces the gradients of the leaves.
GradcheckResult gradcheck_leaves(const std::function<Tensor()>& f, const std::vector<Tensor>& leaves,
                                 const GradcheckOptions& options = {});

}  // namespace tapeformer
