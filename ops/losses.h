// Losses that compare the elements of two tensors of equal shape. cross_entropy() (ops/softmax.h) is the
// loss for classification.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// Returns the mean squared error mean((prediction - target)²), shape (). Both tensors have the same shape and
// floating dtype, and both receive gradients. The mean of no elements is NaN. Throws ShapeError if shapes
// or dtypes differ.
Tensor mse_loss(const Tensor& prediction, const Tensor& target);

// Returns the mean binary cross entropy in nats, shape ():
// mean(-target log σ(logits) - (1 - target) log(1 - σ(logits))), computed without overflow for logits of any
// size. Targets are probabilities in [0, 1], which is not checked. Both tensors have the same shape and
// floating dtype, and both receive gradients. Throws ShapeError if shapes or dtypes differ.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets);

}  // namespace tapeformer
