#include "models/classifier.h"

#include "models/layers/positions.h"
#include "ops/elementwise.h"
#include "ops/lengths.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const ClassifierOptions& checked(const ClassifierOptions& options) {
  const std::vector<OptionProblem> problems = option_problems(options.encoder);
  if (!problems.empty()) throw OptionError(problems.front());
  if (const std::string text = unsupported_text(options.encoder.attention,
                                                "length masks, which sequences of different lengths need",
                                                &AttentionCapabilities::length_masks);
      !text.empty())
    throw OptionError("attention", text);
  check_attention_length(options.encoder.attention, options.max_length);
  return options;
}

EncoderOptions encoder_options(const ClassifierOptions& options) {
  EncoderOptions encoder = options.encoder;
  encoder.max_length = options.max_length;
  return encoder;
}

// Returns the mean of the valid rows of x (batch, length, width), (batch, width). A sequence without tokens
// gives zeros.
Tensor mean_of_valid(const Tensor& x, const Tensor& lengths) {
  if (!lengths.defined()) return mean(x, 1);
  const int64_t batch = x.size(0), length = x.size(1);
  const Tensor valid = checked_lengths("classifier", "length", lengths, batch, length);
  const Tensor shares = Tensor::zeros({batch, 1, length}, DType::float64);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < valid.data<int64_t>()[b]; ++i)
      shares.data<double>()[b * length + i] = 1 / static_cast<double>(valid.data<int64_t>()[b]);
  return reshape(matmul(shares.to(x.dtype()).to(x.device()), x), {batch, x.size(2)});
}

}  // namespace

Classifier::Classifier(const ClassifierOptions& options)
    : value_embedding(checked(options).vocabulary, options.encoder.width()),
      encoder(encoder_options(options)),
      predictor(options.encoder.output_width(), options.classes),
      positions(sinusoidal_positions(options.max_length, options.encoder.width()).to(DType::float32)),
      options_(options) {
  add_child("value_embedding", value_embedding);
  add_child("", encoder);
  add_child("predictor", predictor);
  add_buffer("positions", positions);
}

Tensor Classifier::forward(const Tensor& tokens, const Tensor& lengths, const ForwardContext& context) const {
  check(tokens.rank() == 2 && tokens.size(1) <= options_.max_length, "classifier", "tokens ", tokens.shape(),
        " must be (batch, length) with length at most ", options_.max_length);
  const Tensor x = add(value_embedding.forward(tokens), slice(positions, 0, 0, tokens.size(1)));
  const Tensor encoded = encoder.forward(x, {.causal = false, .key_lengths = lengths}, context);
  return predictor.forward(mean_of_valid(encoded, lengths));
}

Tensor Classifier::loss(const Batch& batch, const ForwardContext& context) const {
  return cross_entropy(forward(batch.tokens, batch.lengths, context), batch.labels);
}

Classifier::Scores Classifier::score(const Batch& batch, uint64_t seed) const {
  const NoGrad no_grad;
  const Tensor logits = forward(batch.tokens, batch.lengths, {.seed = seed});
  const auto predictions = argmax(logits).to_vector(), labels = batch.labels.to_vector();
  double correct = 0;
  for (size_t i = 0; i < labels.size(); ++i) correct += predictions[i] == labels[i];
  return {cross_entropy(logits, batch.labels).item(), correct / static_cast<double>(labels.size())};
}

}  // namespace tapeformer
