// The autoregressive model of "Transformers are RNNs" (section 4.2): it reads bytes or symbols and predicts
// the distribution of the next byte or symbol. Value embeddings are concatenated with fixed position features
// and pass through a causal encoder and a linear predictor. The distribution is a mixture of logistics for
// images, and a softmax over the vocabulary for other sequences.
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
#include "ops/softmax.h"

namespace tapeformer {

// Distribution of the next token.
enum class OutputHead { logistic_mixture, categorical };
// Position features of the input.
enum class PositionKind {
  none,        // no features; EncoderOptions::rotary may rotate queries and keys
  sinusoidal,  // features of the index, concatenated with the value embedding
  grid,        // features of row, column and channel, concatenated with the value embedding
  axial,       // learned, added to the value embedding
};

struct AutoregressiveOptions {
  EncoderOptions encoder;
  OutputHead head = OutputHead::logistic_mixture;
  int64_t vocabulary = 256;  // number of token values and of classes of the categorical head
  int64_t mixtures = 10;     // number of logistics in the mixture
  int64_t max_length = 0;    // maximum number of input tokens
  // Width of the value embeddings if position features are concatenated with them. The position features have
  // the remaining width, encoder.width() - value_dim. The value 0 selects encoder.width() / 2. If
  // concatenates_positions() is false, value_dim must be 0.
  int64_t value_dim = 0;
  PositionKind positions = PositionKind::sinusoidal;
  ImageLayout layout;  // size of the image, for grid positions
  AxialShape axial;    // shape of the position tables, for axial positions
  // Number of chunks into which the result of the encoder is split for the predictor and the loss.
  int64_t loss_chunks = 1;
  // If true, the predictor and the value embedding share one weight, which is drawn from N(0, 1 / width).
  // This requires the categorical head, and embeddings as wide as the result of the encoder.
  bool tied_embeddings = false;
  // Options of the cross entropy of the categorical head in training. Evaluation uses the default options.
  CrossEntropyOptions training_loss = {};

  // Returns whether position features are concatenated with the value embedding.
  bool concatenates_positions() const {
    return positions == PositionKind::sinusoidal || positions == PositionKind::grid;
  }
  // Returns the width of value embeddings.
  int64_t value_width() const {
    if (!concatenates_positions()) return encoder.width();
    return value_dim > 0 ? value_dim : encoder.width() / 2;
  }
  // Returns the maximum number of tokens that the recurrent form can read: max_length, or INT64_MAX for
  // PositionKind::none.
  int64_t position_limit() const { return positions == PositionKind::none ? INT64_MAX : max_length; }
  // Returns the number of predictor outputs for each token. The outputs are the parameters of the
  // distribution of the next token.
  int64_t output_width() const { return head == OutputHead::logistic_mixture ? 3 * mixtures : vocabulary; }
};

// Checks the options and returns a list of invalid values and contradictions. If max_length is 0, the checks
// that depend on the maximum length are skipped.
std::vector<OptionProblem> find_option_problems(const AutoregressiveOptions& options);

class AutoregressiveModel final : public Module {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit AutoregressiveModel(const AutoregressiveOptions& options);

  // Returns the parameters of the distributions of the next tokens, (batch, length, outputs). Row t describes
  // token t + 1. `inputs` is (batch, length) integer. Throws ArgumentError if the length exceeds max_length.
  Tensor forward(const Tensor& inputs, const ForwardContext& context) const;
  // Returns the mean negative log-likelihood in nats per unmasked token of batch.tokens[:, 1:], a scalar.
  Tensor loss(const Batch& batch, const ForwardContext& context) const;
  // Scores of an evaluation. `nats` is the evaluation loss in nats per unmasked token. `accuracy` is the
  // share of unmasked tokens that the model predicts correctly. For a logistic mixture, the accuracy is not
  // computed, and `accuracy` is -1.
  struct Scores {
    double nats = 0, accuracy = -1;
  };
  // Computes both scores in one forward pass. `seed` and `memory` set the members of the same name in
  // ForwardContext. Only attention kinds with has_random_evaluation use `seed`.
  Scores score(const Batch& batch, uint64_t seed = 0, SegmentMemory* memory = nullptr) const;

  const AutoregressiveOptions& options() const { return options_; }

  Embedding value_embedding;
  std::unique_ptr<AxialPositions> axial_positions;  // null unless PositionKind::axial
  Encoder encoder;
  Linear predictor;
  Tensor positions;  // position features (max_length, width - value_width), not trained

 private:
  // Returns the input of the predictor, (batch, length, encoder.output_width).
  Tensor encode(const Tensor& inputs, const ForwardContext& context) const;
  // Returns the mean loss of outputs (rows, outputs) with targets (rows,). `weights` (rows,) is undefined if
  // no row is masked.
  Tensor compute_mean_loss(const Tensor& outputs, const Tensor& targets, const Tensor& weights,
                           const CrossEntropyOptions& options) const;
  // Inputs of the loss: the output of the encoder, (rows, encoder.output_width), with the target token and
  // the weight of each row.
  struct Rows {
    Tensor encoded, targets, weights;
    CrossEntropyOptions loss;
  };
  Rows encode_batch(const Batch& batch, const ForwardContext& context) const;
  Tensor compute_loss(const Rows& rows) const;
  Tensor compute_chunked_loss(const Rows& rows) const;
  double compute_accuracy(const Rows& rows) const;

  AutoregressiveOptions options_;
};

}  // namespace tapeformer
