// A test function that compares the gradient of an op with central differences, in float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

struct GradcheckResult {
  // The largest relative error of all inputs. The relative error of an input is max |analytic - numeric| /
  // max(|analytic|, |numeric|, GradcheckOptions::floor). The numerator is the maximum over all compared
  // elements of the input, and the denominator is a separate maximum over these elements.
  double relative_error = 0;
  int worst_input = -1;  // index of the input with this error; -1 if relative_error is 0
  // Names an element whose gradient or difference is not finite, if there is one. relative_error is then
  // infinity.
  std::string message;
};

struct GradcheckOptions {
  double step = 1e-5;  // the differences use points at distances `step` and 2 * `step` from each element
  int64_t max_elements = 0;  // number of compared elements of each input, evenly spaced; 0: all elements
  double floor = 1e-8;       // lower bound of the denominator of the relative error
};

// Compares the gradients of the scalar sum(f(inputs) * cotangent) with central differences. The cotangent is
// random. The result of `f` is a float64 tensor of any shape. Inputs are float64 tensors, or tensors of an
// integer dtype, which are constants.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

// Compares the gradients of leaves that f() uses, such as the parameters of a module, in the same way. The
// leaves are contiguous float64 tensors on the CPU. The function changes their elements, restores them, and
// adds the gradients to the gradients of the leaves.
GradcheckResult gradcheck_leaves(const std::function<Tensor()>& f, const std::vector<Tensor>& leaves,
                                 const GradcheckOptions& options = {});

}  // namespace tapeformer
