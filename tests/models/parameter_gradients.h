// A gradient check of all parameters of a model.
#pragma once

#include <doctest/doctest.h>

#include <functional>

#include "autograd/gradcheck.h"
#include "models/layers/module.h"

namespace tapeformer::test {

// Compares the gradients of the scalar loss() with central differences, for about 20 elements of each
// parameter. The parameters of the model must be float64.
inline void check_parameter_gradients(const Module& model, const std::function<Tensor()>& loss) {
  const NamedTensors parameters = model.parameters();
  // The denominator of the relative error has a lower bound, because all gradients of a parameter may be 0.
  // For example, the result of softmax attention does not depend on the key bias. The differences of the loss
  // have rounding errors of several units in the last place, about 2e-10 after division by the step.
  const GradcheckResult result = gradcheck_leaves(
      loss, strip_names(parameters), {.kink_step = 1e-7, .max_elements = 20, .min_denominator = 1e-3});
  const std::string worst_parameter =
      result.worst_input < 0 ? "" : parameters[static_cast<size_t>(result.worst_input)].first;
  CAPTURE(worst_parameter);
  CHECK(result.message == "");
  CHECK(result.max_relative_error < 1e-6);
  for (const auto& [bound_name, parameter] : parameters) {
    const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
    CHECK_MESSAGE(gradient(parameter).defined(), name);
  }
}

}  // namespace tapeformer::test
