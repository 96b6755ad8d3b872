// A batch of examples. Data sets return batches of CPU tensors.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

struct Batch {
  Tensor tokens = {};  // (batch, length + 1) uint8 or int64; token t predicts token t + 1
  // (batch, length) uint8: 0 at position t excludes the prediction of token t + 1 from the loss. If
  // undefined, no prediction is excluded.
  Tensor mask = {};
  // (batch,) int64 number of tokens or elements of each example, without padding. Undefined if no example is
  // padded.
  Tensor lengths = {};
  // (batch,) int64 classes, or (batch, labels) int64 labels of utterances; undefined if there are none.
  Tensor labels = {};
  Tensor label_lengths = {};  // (batch,) int64 number of labels of each utterance, without padding
  // (batch, length, features) float32 feature vectors. If each example is a set of feature vectors, the batch
  // has `elements` instead of `tokens`. The features of the frames of utterances are `elements`, too. Padding
  // elements are 0.
  Tensor elements = {};
  Tensor targets = {};  // (batch,) float32; the data set defines their meaning
  // (batch, length) uint8 or int64: the token that position t must predict, if it is not token t + 1. The
  // last token is then not read. Undefined if position t predicts token t + 1.
  Tensor token_targets = {};
  // Translation: (batch, source length) int64 tokens of the sentences to translate, and (batch,) int64
  // numbers of valid tokens. `tokens` are then the translations: a begin token, the sentence, an end token,
  // padding.
  Tensor source = {}, source_lengths = {};

  const Tensor& inputs() const { return tokens.defined() ? tokens : elements; }
};

}  // namespace tapeformer
