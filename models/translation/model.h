// The encoder-decoder Transformer for translation ("Attention is all you need", Vaswani et al. 2017), also
// with reversible stacks as in "Reformer" (Kitaev et al. 2020, section 5) and its code: both halves of a
// stack begin as the embeddings, or only the second half does (EncoderOptions::doubled_input), and the final
// norm reads their mean.
//
// Both sides of a translation use one vocabulary. Its last token is the end token, which also begins each
// translation and pads sequences.
#pragma once

#include <memory>

#include "core/batch.h"
#include "models/encoder/encoder.h"
#include "models/layers/predictor_loss.h"
#include "ops/softmax.h"

namespace tapeformer {

// Positions that are added to the embeddings.
enum class AddedPositions {
  none,        // EncoderOptions::rotary may rotate queries and keys
  sinusoidal,  // not trained
  learned,     // trained from the sinusoids on, a table for each side
};

struct TranslationModelOptions {
  EncoderOptions encoder;      // of the encoder, and of the decoder except for the number of layers
  int64_t decoder_layers = 0;  // 0: as many as the encoder
  int64_t vocabulary_size = 0, max_length = 0;  // max_length: maximum number of tokens of each side
  AddedPositions positions = AddedPositions::sinusoidal;
  // If true, both embeddings and the predictor share one weight, which is initialised from N(0, 1/width), and
  // embeddings are multiplied by √width. Otherwise, embeddings are initialised from N(0, 1).
  bool shared_embeddings = true;
  double label_smoothing = 0.1;  // in training only
  int64_t loss_chunks = 1;       // number of chunks of rows for the predictor and the loss
};

std::vector<OptionProblem> find_option_problems(const TranslationModelOptions& options);

class TranslationModel final : public Module {
 public:
  // Throws OptionError if the options contradict each other or an attention kind does not support them.
  explicit TranslationModel(const TranslationModelOptions& options);

  // Encodes source tokens (batch, source length) int64 with `lengths` (batch,) int64 valid tokens. Throws
  // ShapeError if they are longer than max_length.
  EncodedSource encode(const Tensor& source, const Tensor& lengths, const ForwardContext& context) const;
  // Returns the logits of the next tokens, (batch, length, vocabulary). `inputs` (batch, length) begins with
  // the end token.
  Tensor forward(const Tensor& inputs, const EncodedSource& source, const ForwardContext& context) const;
  // Returns the last row of forward() without a context, (batch, vocabulary).
  Tensor predict_next(const Tensor& inputs, const EncodedSource& source) const;
  // Returns the mean cross entropy in nats of the target tokens that batch.mask selects, a scalar.
  Tensor compute_loss(const Batch& batch, const ForwardContext& context) const;
  // Returns the negative log-likelihoods of the target tokens in nats, (batch, length) float64 on the CPU.
  // Those of padding tokens are 0.
  Tensor compute_token_losses(const Batch& batch) const;

  int64_t end_token() const { return options_.vocabulary_size - 1; }
  // Returns the maximum number of tokens of a sentence without its end token.
  int64_t max_sentence_length() const { return options_.max_length - 1; }
  const Embedding& target_embeddings() const {
    return target_embedding ? *target_embedding : source_embedding;
  }
  // Returns the factor of embeddings.
  double embedding_scale() const;
  const TranslationModelOptions& options() const { return options_; }

  Embedding source_embedding;
  std::unique_ptr<Embedding> target_embedding;  // null if embeddings are shared
  Tensor source_positions, target_positions;    // (max_length, width); undefined without added positions
  Encoder encoder, decoder;
  Linear predictor;

 private:
  Tensor embed(const Embedding& embedding, const Tensor& positions, const Tensor& tokens,
               const ForwardContext& context, const char* dropout_name) const;
  // `lengths` (batch,) are the numbers of valid inputs; undefined: all.
  Tensor decode(const Tensor& inputs, const Tensor& lengths, const EncodedSource& source,
                const ForwardContext& context) const;
  PredictorRows decode_batch(const Batch& batch, const ForwardContext& context) const;

  TranslationModelOptions options_;
};

}  // namespace tapeformer
