// The sequence classifier of the Long Range Arena benchmark (Tay et al. 2020). The embeddings of the tokens
// are the sums of value embeddings and sinusoidal positions. A non-causal encoder processes the embeddings,
// and a linear layer computes the logits from the mean of the encoder outputs. Learned summary tokens can
// precede the sequence. If there are summary tokens, the mean is over the summary tokens only. Otherwise, the
// mean is over the valid tokens.
//
// The encoder can be pretrained on the sequences without their classes ("Never train from scratch", Amos et
// al. 2023): random tokens are masked, and the linear layer predicts each masked token from its encoder
// output.
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
  double masked_share = 0;  // pretraining: probability that a token is masked, in [0, 1); 0: no pretraining
  bool has_variable_lengths = true;  // if true, attention kinds must support length masks
};

class Classifier final : public ExampleModel {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit Classifier(const ClassifierOptions& options);

  // Returns the logits of the classes, (batch, classes). `tokens` is (batch, length) integer. `lengths`
  // (batch,) int64 contains the numbers of valid tokens; if it is undefined, all tokens are valid. Throws
  // ShapeError if the length exceeds max_length.
  Tensor forward(const Tensor& tokens, const Tensor& lengths, const ForwardContext& context) const;
  // Returns the mean cross entropy of batch.labels in nats, or in a pretraining that of the masked tokens of
  // the batch, a scalar.
  Tensor compute_loss(const Batch& batch, const ForwardContext& context) const override;
  // Returns the names of the scores. "nats_per_example" or "nats_per_token" is the loss, and "accuracy" is
  // the share of sequences or masked tokens for which the most probable class or token is correct.
  std::vector<std::string> score_names() const override {
    return {options_.masked_share > 0 ? "nats_per_token" : "nats_per_example", "accuracy"};
  }
  std::vector<double> compute_scores(const Batch& batch, uint64_t seed = 0) const override;

  const ClassifierOptions& options() const { return options_; }

  Embedding value_embedding;
  Encoder encoder;
  Linear predictor;          // of classes, or in a pretraining of tokens
  Tensor summary;            // summary tokens (summary_tokens, width), undefined if there are none
  Tensor position_features;  // sinusoids (max_length, width), not trained

 private:
  // What the predictor predicts. Rows with weight 0 do not count; if `weights` is undefined, all rows count.
  struct Predictions {
    Tensor logits, targets, weights = {};  // (rows, classes), (rows,), (rows,) uint8
  };
  Predictions predict(const Batch& batch, const ForwardContext& context) const;
  // Encodes embeddings (batch, length, width), with the positions and after the summary tokens.
  Tensor encode(const Tensor& embeddings, const Tensor& lengths, const ForwardContext& context) const;

  ClassifierOptions options_;
};

}  // namespace tapeformer
