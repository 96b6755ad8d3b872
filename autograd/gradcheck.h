// Compares an op's gradient with central differences, in float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

struct GradcheckResult {
  double relative_error =
      0;  // worst over inputs: max |analytic - numeric| / max(|analytic|, |numeric|, 1e-8)_inf
  int worst_input = -1;
  std::string message;  // empty when the check could be made
};

// f maps float64 leaves to a tensor of any shape; the scalar checked is sum(f * random cotangent). Inputs
// that are not floating are passed on unchanged. `step` is the half-width of the difference.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, double step = 1e-5);

}  // namespace tapeformer
