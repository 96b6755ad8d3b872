// Phoneme recognition with CTC: acoustic features, an encoder, and at every frame a distribution over labels
// and a blank. The third experiment of "Transformers are RNNs" (Katharopoulos et al. 2020, section 4.3): a
// Transformer of 9 layers with 6 heads of 32, non-causal, or a Bi-LSTM of 3 layers of 320 cells.
#pragma once

#include <memory>

#include "models/encoder.h"
#include "models/layers/lstm.h"
#include "models/layers/subsampling.h"
#include "ops/ctc_loss.h"

namespace tapeformer {

// Utterances padded to one length. Pads are finite numbers; what they are does not matter.
struct CtcBatch {
  Tensor features;       // (batch, frames, features)
  Tensor frame_lengths;  // (batch,) int64
  Tensor labels;         // (batch, longest) int64, without blanks
  Tensor label_lengths;  // (batch,) int64
};

enum class SpeechEncoder { transformer, lstm };

struct SpeechModelOptions {
  int64_t features = 40;  // of a frame
  int64_t classes = 40;   // the blank, which is class 0, and the labels
  // So many neighbouring frames make one step of the encoder: 1, 2 or 4 (models/layers/subsampling.h).
  int64_t subsampling = 1;
  SubsamplingKind subsampling_kind = SubsamplingKind::stack;
  SpeechEncoder kind = SpeechEncoder::transformer;
  EncoderOptions encoder = {
      .layers = 9, .heads = 6, .head_dim = 32, .feedforward = 768, .attention_options = {}};
  bool causal = false;        // of the Transformer: no frame sees later ones
  int64_t max_frames = 2400;  // longest utterance of the Transformer, which has a table of positions
  int64_t lstm_hidden = 320, lstm_layers = 3;
  bool lstm_bidirectional = true;
  double lstm_dropout = 0;
  CtcReduction reduction = CtcReduction::per_utterance;

  int64_t max_steps() const { return subsampled_steps(max_frames, subsampling); }
};

inline constexpr int64_t kSpeechBlank = 0;

struct SpeechOutput {
  Tensor logits;   // (batch, steps, classes)
  Tensor lengths;  // (batch,) int64: steps of each utterance
};

class SpeechModel final : public Module {
 public:
  // Throws ConfigError when sizes contradict each other or the attention kind lacks a form that is needed.
  explicit SpeechModel(const SpeechModelOptions& options);

  // features and frame_lengths of a CtcBatch. Errors: ShapeError for shapes that do not fit, and for more
  // than max_frames.
  SpeechOutput forward(const Tensor& features, const Tensor& frame_lengths,
                       const ForwardContext& context) const;
  // Utterances with too few steps for their labels are counted in the result (ops/ctc_loss.h).
  CtcLoss loss(const CtcBatch& batch, const ForwardContext& context) const;
  // Returns the number of utterances or labels over which loss() averages (SpeechModelOptions::reduction).
  int64_t loss_count(const CtcBatch& batch) const;

  const SpeechModelOptions& options() const { return options_; }

  Subsampling subsampling;
  std::unique_ptr<Linear> input_projection;  // of the Transformer
  std::unique_ptr<Encoder> encoder;          // one of these two is null
  std::unique_ptr<LstmStack> lstm;
  Linear head;
  Tensor positions;  // (max_steps, width) sinusoids, fixed; of the Transformer

 private:
  SpeechModelOptions options_;
};

}  // namespace tapeformer
