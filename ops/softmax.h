// Softmax, log-softmax, log-sum-exp and cross entropy over the last dimension. All functions subtract the
// maximum of a row before exp, so that exp does not overflow.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/softmax.h"

namespace tapeformer {

// softmax() returns the softmax over the last dimension of x, and log_softmax() returns the logarithm of the
// softmax. `x` and the result have shape (…, classes). If all elements of a row are -inf, softmax() returns 0
// and log_softmax() returns -inf for all elements of the row.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
// Returns log(sum(exp(x))) over the last dimension. The result does not have this dimension.
Tensor logsumexp(const Tensor& x);

// Returns the mean cross entropy in nats over the rows with a nonzero weight. With p = softmax(logits), the
// loss of a row is
//   -(1 - label_smoothing) log p[target] - label_smoothing mean(log p) + z_loss logsumexp(logits)².
// `logits` is (rows, classes) with a floating dtype, `targets` is (rows,) with integers in [0, classes), and
// `weights` is (rows,) uint8 or undefined. Returns 0 if no row has a nonzero weight. Throws ArgumentError for
// mismatched shapes, for invalid options, and for a target on the CPU that is out of range.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weights = {},
                     const CrossEntropyOptions& options = {});

}  // namespace tapeformer
