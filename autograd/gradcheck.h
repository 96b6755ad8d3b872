// Comparison of the gradient of an op with central differences, in float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

struct GradcheckResult {
  // Maximum over inputs of max |analytic - numeric| / max(|analytic|, |numeric|, 1e-8). Numerator and
  // denominator are maxima over the elements of the input.
  double relative_error = 0;
  int worst_input = -1;  // index of the input with relative_error; -1 if it is 0
  std::string message;   // names an element whose gradient is not finite; empty if there is none
};

// Compares the gradients of the scalar sum(f(inputs) * cotangent) with central differences. The cotangent is
// random. The result of `f` is a float64 tensor of any shape. Inputs are float64 tensors, or tensors of an
// integer dtype, which are constants. The differences use points at distances `step` and 2 * `step` from each
// element.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, double step = 1e-5);

}  // namespace tapeformer
