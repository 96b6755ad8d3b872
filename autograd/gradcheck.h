// A test function that compares the gradient of an op with central differences, in float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

struct GradcheckResult {
  // The largest relative error of any input. The relative error of one input is error / scale:
  //   error = max |analytic - numeric|
  //   scale = max(max |analytic|, max |numeric|, GradcheckOptions::min_denominator)
  // `analytic` is the gradient that backward() computes, and `numeric` is the central difference. The maxima
  // are taken over all compared elements of the input.
  double max_relative_error = 0;
  int worst_input = -1;  // index of the input with this error; -1 if max_relative_error is 0
  // If an analytic or numeric gradient is not finite, the message contains the index of the element and both
  // gradients, and max_relative_error is infinity. Otherwise the message is empty.
  std::string message;
};

struct GradcheckOptions {
  // Step of the central differences. The function is evaluated with ±step and ±2 * step added to each
  // element.
  double step = 1e-5;
  // A second step for elements whose central difference does not match the gradient, for example because the
  // function has a kink within 2 * `step`. The difference that is closer to the gradient is used. If 0, there
  // is no second step.
  double kink_step = 0;
  // If not 0, about `max_elements` elements of each input are compared: only every n-th element. n is
  // max(numel / max_elements, 1). If n and the size of the last dimension are not coprime, n is increased
  // until they are.
  int64_t max_elements = 0;
  double min_denominator = 1e-8;  // lower bound of the denominator of the relative error
};

// Compares the gradients of the scalar sum(f(inputs) * cotangent) with central differences. The cotangent is
// random. The result of `f` is a float64 tensor of any shape. Each input is a float64 tensor or an integer
// tensor. Integer tensors are constants.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

// Compares the gradients of leaves that f() uses, such as the parameters of a module, in the same way. The
// leaves are contiguous float64 tensors on the CPU. gradcheck_leaves() temporarily changes their elements. If
// f() throws, the changed element is not restored. The gradients of the leaves are overwritten.
GradcheckResult gradcheck_leaves(const std::function<Tensor()>& f, const std::vector<Tensor>& leaves,
                                 const GradcheckOptions& options = {});

}  // namespace tapeformer
