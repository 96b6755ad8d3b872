// A function that records an op with several results on the tape.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Records `results` as the results of one op with the inputs `inputs`. `gradient` is a function (const
// Gradients&, NeededGradients) -> Gradients, which maps the gradients of the results to the gradients of the
// inputs. An undefined gradient of a result means zero. backward() calls `gradient` if the gradient of at
// least one result is defined.
template <class F>
void record_results(const char* op, const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                    F&& gradient) {
  // Each result is recorded as an op whose only input is the empty tensor `joint`. In backward(), the
  // gradient function of each result stores the gradient of the result in `result_gradients`. The gradient
  // function of `joint` runs last, and passes all stored gradients to `gradient`.
  const auto result_gradients = std::make_shared<Gradients>(results.size());
  const Tensor joint =
      record(op, Tensor::empty({0}), inputs,
             [result_gradients, gradient = std::forward<F>(gradient)](const Tensor&, NeededGradients needs) {
               return gradient(std::exchange(*result_gradients, Gradients(result_gradients->size())), needs);
             });
  if (!requires_grad(joint)) return;
  for (size_t i = 0; i < results.size(); ++i)
    record(op, results[i], {&joint}, [result_gradients, i](Tensor g, NeededGradients) {
      (*result_gradients)[i] = std::move(g);
      return Gradients{Tensor::empty({0})};
    });
}

}  // namespace tapeformer
