// What a data set hands to a model: a struct of CPU tensors.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

struct Batch {
  Tensor tokens;  // (batch, length + 1) uint8 or int64; position t predicts position t + 1
  Tensor mask;  // (batch, length) uint8: 1 where the prediction of token t + 1 counts; undefined: everywhere
  Tensor labels;  // (batch,) int64 classes; undefined when the set has none
};

}  // namespace tapeformer
