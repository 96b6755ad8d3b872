// Batch of examples from a data set: a struct of CPU tensors.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

struct Batch {
  Tensor tokens;  // (batch, length + 1) uint8 or int64; position t predicts position t + 1
  // (batch, length) uint8: 1 at position t if the loss includes the prediction of token t + 1. Undefined: the
  // loss includes all predictions.
  Tensor mask;
  Tensor labels;  // (batch,) int64 classes; undefined when the set has none
};

}  // namespace tapeformer
