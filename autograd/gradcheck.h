// A test function that compares the gradient of an op with central differences, in float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

struct GradcheckResult {
  // The largest relative error of all inputs. The relative error of an input is max |analytic - numeric| /
  // max(|analytic|, |numeric|, 1e-8). The numerator is the maximum over all elements of the input, and the
  // denominator is a separate maximum over all elements.
  double relative_error = 0;
  int worst_input = -1;  // index of the input with this error; -1 if relative_error is 0
  std::string message;   // names an element with a non-finite gradient, if there is one
};

// Compares the gradients of the scalar sum(f(inputs) * cotangent) with central differences. The cotangent is
// random. The result of `f` is a float64 tensor of any shape. Inputs are float64 tensors, or tensors of an
// integer dtype, which are constants. The differences use points at distances `step` and 2 * `step` from each
// element.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, double step = 1e-5);

}  // namespace tapeformer
