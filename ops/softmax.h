// Softmax and its logarithms over the last dimension, computed after subtracting the maximum.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

// x (…, classes); result of the same shape. A row of -inf gives zeros in softmax and -inf in log_softmax.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
// log(sum(exp(x))) over the last dimension, which is dropped.
Tensor logsumexp(const Tensor& x);

// Mean cross entropy in nats, -log softmax(logits)[target], over the rows whose weight is not zero:
// sum(weight * loss) / sum(weight). logits (rows, classes) floating, targets (rows,) integer in [0, classes),
// weights (rows,) uint8 or undefined. No counted rows: 0. Errors: ShapeError; a target out of range names its
// row.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weights = {});

}  // namespace tapeformer
