// The autoregressive model of "Transformers are RNNs" (section 4.2), which predicts the distribution of the
// next token from the previous tokens. Tokens are bytes or symbols. Value embeddings are concatenated with
// fixed position features and pass through a causal encoder and a linear predictor. The distribution is a
// mixture of logistics for images, and a softmax over the vocabulary for other sequences.
//
// The model also supports the techniques of "Reformer" (Kitaev et al. 2020): a reversible encoder, learned
// axial positions, and a loss that is computed in chunks of rows. Axial positions are added to the value
// embeddings, which then have the full width of the encoder.
#pragma once

#include <cstdint>
#include <string>

#include "core/batch.h"
#include "models/encoder/encoder.h"
#include "models/layers/axial_positions.h"
#include "models/layers/positions.h"
#include "models/layers/predictor_loss.h"
#include "ops/softmax.h"

namespace tapeformer {

// Distribution of the next token.
enum class OutputHead { logistic_mixture, categorical };
// Position features of the input.
enum class PositionKind {
  none,        // no features; EncoderOptions::rotary may rotate queries and keys
  sinusoidal,  // features of the index, concatenated with the value embedding
  grid,        // features of row, column and channel, concatenated with the value embedding
  axial,       // learned, one table per axis, added to the value embedding
  learned,     // learned, one table, added to the value embedding; sinusoidal at first
};

struct AutoregressiveModelOptions {
  EncoderOptions encoder;
  OutputHead head = OutputHead::logistic_mixture;
  int64_t vocabulary_size = 256;  // number of token values; the categorical head has one class per value
  int64_t mixtures = 10;          // number of logistics in the mixture
  int64_t max_length = 0;         // maximum number of input tokens
  // Width of the value embeddings if position features are concatenated with them. The position features have
  // the remaining width, encoder.width() - value_embedding_dim. The value 0 selects encoder.width() / 2. If
  // concatenates_positions() is false, value_embedding_dim must be 0.
  int64_t value_embedding_dim = 0;
  PositionKind position_kind = PositionKind::sinusoidal;
  ImageLayout layout;          // size of the image, for grid positions
  AxialShape axial_shape;      // shape of the position tables, for axial positions
  int64_t position_count = 0;  // rows of the table of learned positions; 0: max_length
  // Number of chunks into which the rows of the encoder output are divided for the predictor and the loss.
  int64_t loss_chunks = 1;
  // If true, the predictor and the value embedding share one weight, which is initialised from N(0, 1/width).
  // Tied embeddings require the categorical head, and value embeddings that are as wide as the output of the
  // encoder.
  bool tied_embeddings = false;
  bool predictor_bias = true;
  // Options of the cross entropy of the categorical head in training. Evaluation uses the default options.
  CrossEntropyOptions training_loss_options = {};

  bool concatenates_positions() const {
    return position_kind == PositionKind::sinusoidal || position_kind == PositionKind::grid;
  }
  int64_t value_embedding_width() const {
    if (!concatenates_positions()) return encoder.width();
    return value_embedding_dim > 0 ? value_embedding_dim : encoder.width() / 2;
  }
  // Returns the maximum number of tokens that the recurrent form can read: max_length, or INT64_MAX for
  // PositionKind::none.
  int64_t position_limit() const { return position_kind == PositionKind::none ? INT64_MAX : max_length; }
  // Returns the number of predictor outputs for each token. The outputs are the parameters of the
  // distribution of the next token.
  int64_t output_width() const {
    return head == OutputHead::logistic_mixture ? 3 * mixtures : vocabulary_size;
  }
};

// Checks the options and returns a list of invalid values and contradictions. If max_length is 0, the checks
// that depend on the maximum length are skipped.
std::vector<OptionProblem> find_option_problems(const AutoregressiveModelOptions& options);

class AutoregressiveModel final : public Module {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit AutoregressiveModel(const AutoregressiveModelOptions& options);

  // Returns the parameters of the distributions of the next tokens, (batch, length, outputs). Row t describes
  // token t + 1. `inputs` is (batch, length) integer. Throws ShapeError if the length exceeds max_length.
  Tensor forward(const Tensor& inputs, const ForwardContext& context) const;
  // Returns the inputs of the encoder, (batch, length, width), for tokens (batch, length) at the positions
  // from `first`.
  Tensor embed(const Tensor& inputs, int64_t first = 0) const;
  // Returns the input of the predictor, (batch, length, encoder.output_width), for the inputs of forward().
  Tensor encode(const Tensor& inputs, const ForwardContext& context) const;
  // Returns the mean loss per unmasked token of batch.token_targets or, if they are undefined, of
  // batch.tokens[:, 1:], a scalar. The loss is the negative log-likelihood in nats. In training,
  // training_loss_options can add label smoothing and a z-loss.
  Tensor compute_loss(const Batch& batch, const ForwardContext& context) const;
  // Scores of an evaluation. `loss_nats` is the evaluation loss in nats per unmasked token. `accuracy` is the
  // share of unmasked tokens that the model predicts correctly. For a logistic mixture, the accuracy is not
  // computed, and `accuracy` is -1.
  struct EvaluationScores {
    double loss_nats = 0, accuracy = -1;
  };
  // Computes both scores in one forward pass. `seed` and `memory` set the members of the same name in
  // ForwardContext. Only attention kinds with has_random_evaluation use `seed`.
  EvaluationScores compute_scores(const Batch& batch, uint64_t seed = 0,
                                  SegmentMemory* memory = nullptr) const;

  const AutoregressiveModelOptions& options() const { return options_; }

  Embedding value_embedding;
  std::unique_ptr<AxialPositions> axial_positions;  // null unless PositionKind::axial
  Encoder encoder;
  Linear predictor;
  Tensor learned_positions;  // (position_count, width); undefined unless PositionKind::learned
  Tensor position_features;  // features (max_length, width - value_embedding_width), not trained

 private:
  // Returns the mean loss of outputs (rows, outputs) with targets (rows,). An element of `weights` (rows,) is
  // 0 if its row is masked. `weights` is undefined if no row is masked.
  Tensor compute_mean_loss(const Tensor& outputs, const Tensor& targets, const Tensor& weights,
                           const CrossEntropyOptions& options) const;
  struct LossInputs {
    PredictorRows rows;
    CrossEntropyOptions loss_options;
  };
  LossInputs encode_batch(const Batch& batch, const ForwardContext& context) const;
  Tensor compute_loss(const LossInputs& inputs) const;
  double compute_accuracy(const PredictorRows& inputs) const;

  AutoregressiveModelOptions options_;
};

}  // namespace tapeformer
