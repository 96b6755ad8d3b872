// Terms that layers add to the loss of a model, such as the reconstruction loss of a compressed memory.
#pragma once

#include "ops/elementwise.h"

namespace tapeformer {

// The terms that layers add to the loss of a model in a forward pass. The caller of a model sets
// ForwardContext::loss_terms and adds sum() to the loss of the model. Replays of the forward pass in
// backward() add no terms.
class LossTerms {
 public:
  // Adds `term`, a scalar, to the sum of the terms. The addition is recorded on the tape.
  void add(const Tensor& term) { sum_ = sum_.defined() ? tapeformer::add(sum_, term) : term; }
  // Returns the sum of the terms, or an undefined tensor if there are no terms.
  const Tensor& sum() const { return sum_; }

 private:
  Tensor sum_;
};

}  // namespace tapeformer
