// A batch of examples, as CPU tensors.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

struct Batch {
  Tensor tokens = {};  // (batch, length + 1) uint8 or int64; token t predicts token t + 1
  // (batch, length) uint8: 0 at position t excludes the prediction of token t + 1 from the loss. If
  // undefined, no prediction is excluded.
  Tensor mask = {};
  Tensor lengths = {};  // (batch,) int64 numbers of tokens without padding; undefined if nothing is padded
  Tensor labels = {};   // (batch,) int64 classes; undefined if the data set has no labels
  // (batch, length, features) float32, used instead of tokens if the examples are sets: one vector of
  // features per element of a set. Padding elements are 0.
  Tensor elements = {};
  Tensor targets = {};  // (batch,) float32; the data set defines their meaning

  // Returns the tokens or the elements.
  const Tensor& inputs() const { return tokens.defined() ? tokens : elements; }
};

}  // namespace tapeformer
