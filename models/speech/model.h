// Phoneme recognition with CTC ("Transformers are RNNs", Katharopoulos et al. 2020, section 4.3). An encoder
// reads acoustic features. For each step, a linear layer computes the logits of the labels and the blank. The
// encoder is a Transformer or an LSTM. In the paper, the Transformer has 9 layers with 6 heads of width 32
// and is not causal, and the LSTM has 3 bidirectional layers with 320 cells.
#pragma once

#include <memory>

#include "core/batch.h"
#include "models/encoder/encoder.h"
#include "models/layers/lstm.h"
#include "models/layers/subsampling.h"
#include "ops/ctc_loss.h"

namespace tapeformer {

enum class SpeechEncoderKind { transformer, lstm };

struct SpeechModelOptions {
  int64_t features = 40;    // number of features per frame
  int64_t classes = 40;     // number of classes: the blank (class 0) and the labels
  int64_t subsampling = 1;  // frames per step of the encoder: 1, 2 or 4 (models/layers/subsampling.h)
  SubsamplingKind subsampling_kind = SubsamplingKind::stack;
  SpeechEncoderKind encoder_kind = SpeechEncoderKind::transformer;
  // Of an LSTM: only the number of layers and the dropout.
  EncoderOptions encoder = {.layers = 9, .heads = 6, .head_dim = 32, .feedforward = 768};
  // Whether sinusoidal position features are added to the input of the encoder. The option applies only to
  // Transformers.
  bool use_sinusoidal_positions = true;
  // If true, the output of the encoder at a step depends only on the inputs of this step and of earlier
  // steps. The option applies only to Transformers.
  bool causal = false;
  int64_t max_frames = 2400;  // maximum number of frames of an utterance; only for Transformers
  int64_t lstm_hidden = 320;  // cells per direction of an LSTM
  bool lstm_bidirectional = true;
  CtcReduction reduction = CtcReduction::per_utterance;

  int64_t max_steps() const { return count_subsampled_steps(max_frames, subsampling); }
};

inline constexpr int64_t kSpeechBlank = 0;

struct SpeechOutput {
  Tensor logits;   // (batch, steps, classes)
  Tensor lengths;  // (batch,) int64: number of steps of each utterance
};

class SpeechModel final : public Module {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit SpeechModel(const SpeechModelOptions& options);

  // Returns the logits for `features` (batch, frames, features) of any floating-point dtype and
  // `frame_lengths` (batch,) int64. Padding must be finite; results do not depend on it. Converts the
  // features to the dtype and the device of the model. Throws ShapeError for mismatched shapes and for
  // utterances longer than max_frames.
  SpeechOutput forward(const Tensor& features, const Tensor& frame_lengths,
                       const ForwardContext& context) const;
  // Returns the loss and the number of utterances with too few steps for their labels (ops/ctc_loss.h).
  // Uses Batch::elements, lengths, labels and label_lengths. Labels are not blank.
  CtcLoss compute_loss(const Batch& batch, const ForwardContext& context) const;
  // Returns the divisor of the mean in compute_loss(): the number of utterances or of labels, depending on
  // SpeechModelOptions::reduction.
  int64_t compute_loss_divisor(const Batch& batch) const;

  const SpeechModelOptions& options() const { return options_; }

  Subsampling subsampling;
  std::unique_ptr<Linear> input_projection;  // null for LSTMs
  std::unique_ptr<Encoder> encoder;          // null for LSTMs
  std::unique_ptr<LstmStack> lstm;           // null for Transformers
  Linear head;
  Tensor position_features;  // sinusoids (max_steps, width), not trained; undefined if the model adds none

 private:
  SpeechModelOptions options_;
};

}  // namespace tapeformer
