#include "models/classifier.h"

#include <algorithm>

#include "models/layers/positions.h"
#include "ops/elementwise.h"
#include "ops/lengths.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const ClassifierOptions& check_options(const ClassifierOptions& options) {
  const std::vector<OptionProblem> problems = find_option_problems(options.encoder);
  if (!problems.empty()) throw OptionError(problems.front());
  if (const std::string text = describe_unsupported(options.encoder.attention,
                                                    "length masks, which sequences of different lengths need",
                                                    &AttentionCapabilities::length_masks);
      options.has_variable_lengths && !text.empty())
    throw OptionError("attention", text);
  check_attention_length(options.encoder.attention, options.summary_tokens + options.max_length);
  return options;
}

EncoderOptions make_encoder_options(const ClassifierOptions& options) {
  EncoderOptions encoder = options.encoder;
  encoder.causal = false;
  encoder.max_length = options.summary_tokens + options.max_length;
  return encoder;
}

Tensor extend_lengths(const Tensor& lengths, int64_t count) {
  if (!lengths.defined() || count == 0) return lengths;
  const Tensor result = lengths.to(kCpu).clone();
  for (int64_t b = 0; b < result.numel(); ++b) result.data<int64_t>()[b] += count;
  return result;
}

// Returns 1 for each valid token that is masked and 0 for the others, (batch, length) uint8 on the CPU.
Tensor draw_masked_tokens(const Batch& batch, double share, const ForwardContext& context) {
  const int64_t count = batch.tokens.size(0), length = batch.tokens.size(1);
  const RandomStream stream(context.seed, "masked_tokens", context.training ? context.step : 0);
  const Tensor masked = Tensor::zeros({count, length}, DType::uint8);
  const Tensor lengths = prepare_lengths("classifier", "length", batch.lengths, count, length);
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < lengths.data<int64_t>()[b]; ++i) {
      const auto number = static_cast<uint64_t>((context.first_example + b) * length + i);
      masked.data<uint8_t>()[b * length + i] = stream.uniform(number) < share;
    }
  return masked;
}

}  // namespace

Classifier::Classifier(const ClassifierOptions& options)
    : value_embedding(check_options(options).vocabulary_size, options.encoder.width()),
      encoder(make_encoder_options(options)),
      predictor(options.encoder.output_width(),
                options.masked_share > 0 ? options.vocabulary_size : options.classes),
      position_features(
          make_sinusoidal_position_features(options.max_length, options.encoder.width()).to(DType::float32)),
      options_(options) {
  add_child("value_embedding", value_embedding);
  if (options.summary_tokens > 0)
    add_parameter("summary_tokens", summary, {options.summary_tokens, options.encoder.width()},
                  make_normal_initializer(1));  // the same distribution as value_embedding
  add_child("", encoder);
  add_child("predictor", predictor);
  add_buffer("positions", position_features);
}

Tensor Classifier::encode(const Tensor& embeddings, const Tensor& lengths,
                          const ForwardContext& context) const {
  const int64_t length = embeddings.size(1), count = options_.summary_tokens;
  check(length <= options_.max_length, "classifier", "length ", length, " of the tokens must be at most ",
        options_.max_length);
  Tensor x = add(embeddings, slice(position_features, 0, 0, length));
  if (count > 0) x = concat({broadcast_to(summary, {x.size(0), count, x.size(2)}), x}, 1);
  return encoder.forward(x, {.causal = false, .key_lengths = extend_lengths(lengths, count)}, context);
}

Tensor Classifier::forward(const Tensor& tokens, const Tensor& lengths, const ForwardContext& context) const {
  check(tokens.rank() == 2, "classifier", "tokens ", tokens.shape(), " must be (batch, length)");
  const int64_t count = options_.summary_tokens;
  const Tensor encoded = encode(value_embedding.forward(tokens), lengths, context);
  return predictor.forward(count > 0 ? mean(slice(encoded, 1, 0, count), 1)
                                     : average_valid_rows(encoded, lengths));
}

Classifier::Predictions Classifier::predict(const Batch& batch, const ForwardContext& context) const {
  if (options_.masked_share == 0) return {forward(batch.tokens, batch.lengths, context), batch.labels};
  const Tensor masked = draw_masked_tokens(batch, options_.masked_share, context).to(batch.tokens.device());
  const Tensor embeddings = value_embedding.forward(batch.tokens);
  const Tensor hidden = reshape(masked, {masked.size(0), masked.size(1), 1}).to(embeddings.dtype());
  const Tensor encoded = encode(mul(embeddings, add(mul(hidden, -1), 1)), batch.lengths, context);
  const Tensor rows = slice(encoded, 1, options_.summary_tokens, encoded.size(1));
  return {predictor.forward(reshape(rows, {masked.numel(), rows.size(2)})),
          reshape(batch.tokens, {masked.numel()}), reshape(masked, {masked.numel()})};
}

Tensor Classifier::compute_loss(const Batch& batch, const ForwardContext& context) const {
  const Predictions p = predict(batch, context);
  return cross_entropy(p.logits, p.targets, p.weights);
}

std::vector<double> Classifier::compute_scores(const Batch& batch, uint64_t seed) const {
  const NoGradScope no_grad;
  const Predictions p = predict(batch, {.seed = seed});
  const auto predictions = argmax(p.logits).to_vector(), targets = p.targets.to_vector();
  const auto weights = p.weights.defined() ? p.weights.to_vector() : std::vector<double>(targets.size(), 1);
  double correct = 0, count = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    correct += weights[i] * (predictions[i] == targets[i]);
    count += weights[i];
  }
  return {cross_entropy(p.logits, p.targets, p.weights).item(), correct / std::max(count, 1.0)};
}

}  // namespace tapeformer
