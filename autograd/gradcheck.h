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
  int worst_input = -1;  // index of the input with the largest error; -1 if max_relative_error is 0
  // If an analytic or numeric gradient is not finite, the message contains the index of the element and both
  // gradients, and max_relative_error is infinity. Otherwise the message is empty.
  std::string message;
};

struct GradcheckOptions {
  // Step of the central differences. The function is evaluated with ±step and ±2 * step added to each
  // element.
  double step = 1e-5;
  // A second step for elements whose central difference does not match the gradient, for example because the
  // function has a kink within 2 * `step`. Of the differences with the two steps, the one that is closer to
  // the gradient is used. If `kink_step` is 0, no second step is used.
  double kink_step = 0;
  // If `max_elements` is 0, all elements are compared. Otherwise only every n-th element of each input is
  // compared, where n is the smallest number that is coprime to the size of the last dimension and at least
  // max(numel / max_elements, 1).
  int64_t max_elements = 0;
  double min_denominator = 1e-8;  // lower bound of the denominator of the relative error
};

// Compares the gradients of the scalar sum(f(inputs) * cotangent) with central differences. The cotangent is
// random. The result of `f` is a float64 tensor of any shape. Each input is a float64 tensor or an integer
// tensor. Integer tensors are constants.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

// Same as gradcheck(), for the gradients of leaves that f() uses, such as the parameters of a module. The
// leaves are contiguous float64 tensors on the CPU. gradcheck_leaves() temporarily changes the elements of
// the leaves. If f() throws, the element that is changed at this time is not restored. The gradients of the
// leaves are overwritten.
GradcheckResult gradcheck_leaves(const std::function<Tensor()>& f, const std::vector<Tensor>& leaves,
                                 const GradcheckOptions& options = {});

}  // namespace tapeformer
