#include "models/classifier.h"

#include "models/layers/positions.h"
#include "ops/elementwise.h"
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

}  // namespace

Classifier::Classifier(const ClassifierOptions& options)
    : value_embedding(check_options(options).vocabulary_size, options.encoder.width()),
      encoder(make_encoder_options(options)),
      predictor(options.encoder.output_width(), options.classes),
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

Tensor Classifier::forward(const Tensor& tokens, const Tensor& lengths, const ForwardContext& context) const {
  check(tokens.rank() == 2 && tokens.size(1) <= options_.max_length, "classifier", "tokens ", tokens.shape(),
        " must be (batch, length) with length at most ", options_.max_length);
  const int64_t count = options_.summary_tokens;
  Tensor x = add(value_embedding.forward(tokens), slice(position_features, 0, 0, tokens.size(1)));
  if (count > 0) x = concat({broadcast_to(summary, {x.size(0), count, x.size(2)}), x}, 1);
  const Tensor encoded =
      encoder.forward(x, {.causal = false, .key_lengths = extend_lengths(lengths, count)}, context);
  return predictor.forward(count > 0 ? mean(slice(encoded, 1, 0, count), 1)
                                     : average_valid_rows(encoded, lengths));
}

Tensor Classifier::compute_loss(const Batch& batch, const ForwardContext& context) const {
  return cross_entropy(forward(batch.tokens, batch.lengths, context), batch.labels);
}

std::vector<double> Classifier::compute_scores(const Batch& batch, uint64_t seed) const {
  const NoGradScope no_grad;
  const Tensor logits = forward(batch.tokens, batch.lengths, {.seed = seed});
  const auto predictions = argmax(logits).to_vector(), labels = batch.labels.to_vector();
  double correct = 0;
  for (size_t i = 0; i < labels.size(); ++i) correct += predictions[i] == labels[i];
  return {cross_entropy(logits, batch.labels).item(), correct / static_cast<double>(labels.size())};
}

}  // namespace tapeformer
