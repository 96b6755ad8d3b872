// The autoregressive model of "Transformers are RNNs" (section 4.2): bytes or symbols in, a distribution of
// the next one out. Value embedding concatenated with fixed position features, causal encoder, linear
// predictor. Images end in a mixture of logistics, other sequences in a softmax over the vocabulary.
//
// With the options of "Reformer" (Kitaev et al. 2020): a reversible encoder, learned axial positions added to
// a value embedding of the whole width, and a loss whose predictor runs over a few rows at a time.
#pragma once

#include <string>

#include "core/batch.h"
#include "models/encoder.h"
#include "models/layers/axial_positions.h"
#include "models/layers/positions.h"

namespace tapeformer {

enum class Head { logistic_mixture, categorical };
enum class Positions { sinusoidal, grid, axial };

struct AutoregressiveOptions {
  EncoderOptions encoder;
  Head head = Head::logistic_mixture;
  int64_t vocabulary = 256;  // distinct input tokens; outputs too with the categorical head
  int64_t mixtures = 10;
  int64_t max_length = 0;  // positions, that is input tokens, of the longest sequence
  int64_t value_dim = 0;   // width of the value embedding; the rest of the width holds positions. 0: half
  Positions positions = Positions::sinusoidal;
  ImageLayout layout;       // for grid positions
  AxialShape axial;         // for axial positions
  int64_t loss_chunks = 1;  // pieces that the rows of predictor and loss are cut into

  int64_t value_width() const {
    if (positions == Positions::axial) return encoder.width();
    return value_dim > 0 ? value_dim : encoder.width() / 2;
  }
  int64_t outputs() const { return head == Head::logistic_mixture ? 3 * mixtures : vocabulary; }
};

class AutoregressiveModel final : public Module {
 public:
  // Throws ConfigError when sizes contradict each other.
  explicit AutoregressiveModel(const AutoregressiveOptions& options);

  // inputs (batch, length) integer; result (batch, length, outputs): position t describes token t + 1.
  // Errors: ShapeError when the length exceeds max_length.
  Tensor forward(const Tensor& inputs, const ForwardContext& context) const;
  // Mean negative log-likelihood in nats per counted token of batch.tokens[:, 1:], a scalar.
  Tensor loss(const Batch& batch, const ForwardContext& context) const;
  // What loss() of a pass in evaluation is, and the share of counted tokens whose most probable value is
  // right (categorical head; -1 for mixtures), from one run of the encoder.
  struct Scores {
    double nats = 0, accuracy = -1;
  };
  // seed: of what is drawn in evaluation too, the rotations of LSH attention.
  Scores score(const Batch& batch, uint64_t seed = 0) const;

  const AutoregressiveOptions& options() const { return options_; }

  Embedding value_embedding;
  std::unique_ptr<AxialPositions> axial_positions;  // null for fixed ones
  Encoder encoder;
  Linear predictor;
  Tensor positions;  // (max_length, width - value_width), fixed

 private:
  // What the predictor reads, (batch, length, encoder.output_width).
  Tensor encode(const Tensor& inputs, const ForwardContext& context) const;
  // Mean loss of outputs (rows, outputs).
  Tensor row_loss(const Tensor& outputs, const Tensor& targets, const Tensor& weights) const;
  Tensor chunked_loss(const Tensor& rows, const Tensor& targets, const Tensor& weights) const;
  // What loss() and score() share: the encoder's rows, and for each the token and its weight.
  struct Rows {
    Tensor encoded, targets, weights;
  };
  Rows rows_of_batch(const Batch& batch, const ForwardContext& context) const;
  Tensor loss_of(const Rows& rows) const;
  double accuracy_of(const Rows& rows) const;

  AutoregressiveOptions options_;
};

}  // namespace tapeformer
