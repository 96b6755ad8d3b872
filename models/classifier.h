// The classifier of sequences of the Long Range Arena (Tay et al. 2020). It consists of value embeddings plus
// sinusoidal positions, an encoder that is not causal, the mean over the valid positions, and a linear layer.
#pragma once

#include "core/batch.h"
#include "models/encoder/encoder.h"

namespace tapeformer {

struct ClassifierOptions {
  EncoderOptions encoder;
  int64_t vocabulary = 0;  // number of token values
  int64_t classes = 0;
  int64_t max_length = 0;  // maximum number of tokens of a sequence
};

class Classifier final : public Module {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit Classifier(const ClassifierOptions& options);

  // Returns the logits (batch, classes) of tokens (batch, length) integer with lengths (batch,) int64, or
  // undefined lengths if all tokens are valid. Throws ShapeError if the length exceeds max_length.
  Tensor forward(const Tensor& tokens, const Tensor& lengths, const ForwardContext& context) const;
  // Returns the mean cross entropy of batch.labels in nats, a scalar.
  Tensor loss(const Batch& batch, const ForwardContext& context) const;
  // The loss in evaluation, and the share of sequences whose most probable class is correct.
  struct Scores {
    double nats = 0, accuracy = 0;
  };
  // Computes both scores in one forward pass. `seed` is for attention kinds with random_evaluation.
  Scores score(const Batch& batch, uint64_t seed = 0) const;

  const ClassifierOptions& options() const { return options_; }

  Embedding value_embedding;
  Encoder encoder;
  Linear predictor;
  Tensor positions;  // sinusoids (max_length, width), not trained

 private:
  ClassifierOptions options_;
};

}  // namespace tapeformer
