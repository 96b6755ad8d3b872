// Copies of weights in bfloat16. Weights are rounded once per training step, or once for decoding, instead of
// in every product.
#pragma once

#include <utility>
#include <vector>

#include "core/tensor.h"
#include "ops/kernels/rounded_weights.h"

namespace tapeformer {

class RoundedWeights {
 public:
  RoundedWeights() = default;
  // Allocates bfloat16 copies of the float32 weights on CUDA devices with the precision bfloat16. Ignores all
  // other tensors. Copies of adjacent weights are adjacent, so that linear layers can use several weights as
  // one matrix.
  explicit RoundedWeights(const std::vector<Tensor>& weights);

  // Rounds the weights to bfloat16 and writes the copies. Must be called before the first Scope is created,
  // and after each change of the weights.
  void update() const;
  // Returns the copy of a weight, or null if there is none.
  const BFloat16* find_copy(const Tensor& weight) const;

  // Makes the linear layers of this thread use the copies during the lifetime of the scope.
  class Scope {
   public:
    explicit Scope(const RoundedWeights& weights)
        : previous_(std::exchange(cuda::rounded_copies, &weights.copies_by_address_)) {}
    ~Scope() { cuda::rounded_copies = previous_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const cuda::RoundedCopies* previous_;
  };

 private:
  std::vector<Tensor> weights_, copies_;
  cuda::RoundedCopies copies_by_address_;
};

}  // namespace tapeformer
