// A gradient check of all parameters of a model.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "autograd/tape.h"
#include "models/layers/module.h"

namespace tapeformer::test {

// Compares the gradients of the scalar loss() with finite differences, for about 20 elements of each
// parameter. The parameters of the model must be float64.
inline void check_parameter_gradients(const Module& model, const std::function<Tensor()>& loss) {
  backward(loss());
  for (const auto& [bound_name, parameter] : model.parameters()) {
    const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
    CAPTURE(name);
    const Tensor exact = gradient(parameter);
    REQUIRE(exact.defined());
    // `largest` has a lower bound above 0, because all gradients of a parameter may be 0. For example, the
    // result of softmax attention does not depend on the key bias.
    double largest = 1e-4, error = 0;
    for (int64_t i = 0; i < parameter.numel(); i += 1 + parameter.numel() / 20) {
      const NoGrad no_grad;
      double* const value = parameter.data<double>() + i;
      const double saved = *value, h = 1e-5;
      const auto loss_at = [&](double offset) {
        *value = saved + offset;
        return loss().item();
      };
      const double numeric = (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
      *value = saved;
      largest = std::max({largest, std::abs(numeric), std::abs(exact.data<double>()[i])});
      error = std::max(error, std::abs(numeric - exact.data<double>()[i]));
    }
    CHECK(error / largest < 1e-6);
  }
}

}  // namespace tapeformer::test
