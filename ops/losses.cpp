#include "ops/losses.h"

#include "ops/operators.h"
#include "ops/reduce.h"

namespace tapeformer {
namespace {

void check_pair(const char* op, const char* name, const Tensor& input, const Tensor& target) {
  check_defined(op, name, input, "the target", target);
  check(input.shape() == target.shape() && input.dtype() == target.dtype(), op, name, " ", input.shape(), " ",
        tapeformer::name_of(input.dtype()), " and target ", target.shape(), " ",
        tapeformer::name_of(target.dtype()), " must be equal in shape and dtype");
}

}  // namespace

Tensor mse_loss(const Tensor& prediction, const Tensor& target) {
  check_pair("mse_loss", "the prediction", prediction, target);
  return mean(square(prediction - target));
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets) {
  check_pair("binary_cross_entropy_with_logits", "the logits", logits, targets);
  // With x = logits, the loss is max(x, 0) - x target + log(1 + exp(-|x|)), where -|x| = x - 2 max(x, 0).
  const Tensor positive = relu(logits);
  return mean(positive - logits * targets + softplus(logits - 2 * positive));
}

}  // namespace tapeformer
