// The sequence classifier of the Long Range Arena benchmark (Tay et al. 2020). The embeddings of the tokens
// are the sums of value embeddings and sinusoidal positions. A non-causal encoder processes the embeddings,
// and a linear layer computes the logits from the mean of the encoder outputs. Learned summary tokens can
// precede the sequence. If there are summary tokens, the mean is over the summary tokens only. Otherwise, the
// mean is over the valid tokens.
#pragma once

#include "models/encoder/encoder.h"
#include "models/example_model.h"

namespace tapeformer {

struct ClassifierOptions {
  EncoderOptions encoder;
  int64_t vocabulary_size = 0;  // number of token values
  int64_t classes = 0;
  int64_t max_length = 0;  // maximum number of tokens of a sequence, without the summary tokens
  int64_t summary_tokens = 0;
  bool has_variable_lengths = true;  // if true, attention kinds must support length masks
};

class Classifier final : public ExampleModel {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit Classifier(const ClassifierOptions& options);

  // Returns the logits, (batch, classes). `tokens` is (batch, length) integer. `lengths` (batch,) int64
  // contains the numbers of valid tokens; if it is undefined, all tokens are valid. Throws ShapeError if
  // the length exceeds max_length.
  Tensor forward(const Tensor& tokens, const Tensor& lengths, const ForwardContext& context) const;
  // Returns the mean cross entropy of batch.labels in nats, a scalar.
  Tensor compute_loss(const Batch& batch, const ForwardContext& context) const override;
  // Returns the names of the scores. "nats_per_example" is the loss, and "accuracy" is the share of sequences
  // whose most probable class is correct.
  std::vector<std::string> score_names() const override { return {"nats_per_example", "accuracy"}; }
  std::vector<double> compute_scores(const Batch& batch, uint64_t seed = 0) const override;

  const ClassifierOptions& options() const { return options_; }

  Embedding value_embedding;
  Encoder encoder;
  Linear predictor;
  Tensor summary;            // summary tokens (summary_tokens, width), undefined if there are none
  Tensor position_features;  // sinusoids (max_length, width), not trained

 private:
  ClassifierOptions options_;
};

}  // namespace tapeformer
