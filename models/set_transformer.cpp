#include "models/set_transformer.h"

#include <cmath>
#include <numbers>

#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr double kSmallestDeviation = 1e-3;

const SetTransformerOptions& check_options(const SetTransformerOptions& options) {
  const std::vector<OptionProblem> problems = find_option_problems(options);
  if (!problems.empty()) throw OptionError(problems.front());
  check_attention_length(options.encoder.attention, options.max_length);
  return options;
}

EncoderOptions make_encoder_options(const SetTransformerOptions& options) {
  EncoderOptions encoder = options.encoder;
  encoder.causal = false;
  encoder.max_length = options.max_length;
  return encoder;
}

EncoderOptions make_decoder_options(const SetTransformerOptions& options) {
  EncoderOptions decoder = options.encoder;
  decoder.attention = {{"softmax", find_attention_kind("softmax").default_options()}};
  decoder.pre_norm = false;
  decoder.causal = false;
  decoder.max_length = options.seed_count();
  return decoder;
}

LearnedQueriesOptions seed_options(const SetTransformerOptions& options) {
  return {.count = options.seed_count(),
          .heads = options.encoder.heads,
          .dim = options.encoder.head_dim,
          .feedforward = options.encoder.feedforward,
          .dropout = options.encoder.attention_dropout};
}

// Returns the log-likelihoods (batch, length) of the elements x (batch, length, features) under mixtures of
// Gaussians. `outputs` is (batch, components, 1 + 2 * features). For set b and Gaussian k, outputs[b, k]
// contains the logit of the mixture weight, the mean (`features` numbers), and `features` numbers s. The
// standard deviations are softplus(s) + kSmallestDeviation.
Tensor log_likelihoods(const Tensor& x, const Tensor& outputs) {
  const int64_t batch = x.size(0), length = x.size(1), features = x.size(2), components = outputs.size(1);
  const Tensor log_shares = log_softmax(reshape(slice(outputs, 2, 0, 1), {batch, components}));
  const auto part = [&](int64_t first) {
    return reshape(slice(outputs, 2, first, first + features), {batch, 1, components, features});
  };
  const Tensor deviations = add(softplus(part(1 + features)), kSmallestDeviation);
  const Tensor distances = div(sub(reshape(x, {batch, length, 1, features}), part(1)), deviations);
  const double constant = 0.5 * static_cast<double>(features) * std::log(2 * std::numbers::pi);
  const Tensor log_scales = add(sum(log(deviations), -1), constant);  // (batch, 1, components)
  const Tensor log_densities = sub(mul(sum(square(distances), -1), -0.5), log_scales);
  return logsumexp(add(log_densities, reshape(log_shares, {batch, 1, components})));
}

}  // namespace

std::vector<OptionProblem> find_option_problems(const SetTransformerOptions& options) {
  std::vector<OptionProblem> problems = find_option_problems(options.encoder);
  if (options.encoder.feedforward == 0)
    problems.push_back({"feedforward", "a model of sets needs feed-forward blocks: expected at least 1"});
  if (options.encoder.width() != options.encoder.attention_width())
    problems.push_back(
        {"width", concat_text("the pooling of a set needs the width heads x head_dim: expected 0 or ",
                              options.encoder.attention_width(), ", got ", options.encoder.width())});
  if (options.encoder.reversible)
    problems.push_back({"reversible", "models of sets have no reversible layers, expected false"});
  if (const std::string text =
          describe_unsupported(options.encoder.attention, "length masks, which sets of different sizes need",
                               &AttentionCapabilities::length_masks);
      !text.empty())
    problems.push_back({"attention", text});
  return problems;
}

AttentionPooling::AttentionPooling(const LearnedQueriesOptions& options)
    : feedforward(options.heads * options.dim, options.feedforward, {}),
      key_projection(options.heads * options.dim, options.heads * options.dim),
      value_projection(options.heads * options.dim, options.heads * options.dim),
      seeds(options) {
  add_child("", feedforward);
  add_child("key_projection", key_projection);
  add_child("value_projection", value_projection);
  add_child("seeds", seeds);
}

Tensor AttentionPooling::forward(const Tensor& z, const Tensor& lengths,
                                 const ForwardContext& context) const {
  const Tensor rows = feedforward.forward(z, {}, z.dtype());
  const int64_t heads = seeds.options().heads, dim = seeds.options().dim;
  const auto projected = [&](const Linear& projection) {
    return reshape(projection.forward(rows), {z.size(0), z.size(1), heads, dim});
  };
  return seeds.forward(projected(key_projection), projected(value_projection), lengths, context, "pooling");
}

SetTransformer::SetTransformer(const SetTransformerOptions& options)
    : input_projection(check_options(options).features, options.encoder.width()),
      encoder(make_encoder_options(options)),
      pooling(seed_options(options)),
      predictor(options.encoder.width(), options.output_width()),
      options_(options) {
  add_child("input_projection", input_projection);
  add_child("", encoder);
  add_child("pooling", pooling);
  for (int64_t i = 0; i < options.decoder_layers; ++i) {
    decoder.push_back(
        std::make_unique<EncoderLayer>(make_decoder_options(options), options.encoder.layers + i));
    add_child(decoder.back()->name(), *decoder.back());
  }
  add_child("predictor", predictor);
}

Tensor SetTransformer::forward(const Tensor& elements, const Tensor& lengths,
                               const ForwardContext& context) const {
  check(elements.rank() == 3 && elements.size(1) <= options_.max_length &&
            elements.size(2) == options_.features,
        "set transformer", "elements ", elements.shape(), " must be (batch, length, ", options_.features,
        ") with length at most ", options_.max_length);
  const Tensor& weight = predictor.weight;
  const Tensor x = input_projection.forward(elements.to(weight.dtype()).to(weight.device()));
  const Tensor encoded = encoder.forward(x, {.causal = false, .key_lengths = lengths}, context);
  Tensor y = pooling.forward(encoded, lengths, context);
  for (const auto& layer : decoder) y = layer->forward(y, {.causal = false, .key_lengths = {}}, context);
  return predictor.forward(y);
}

Tensor SetTransformer::compute_loss(const Batch& batch, const ForwardContext& context) const {
  const Tensor outputs = forward(batch.elements, batch.lengths, context);
  const auto like_outputs = [&](const Tensor& x) { return x.to(outputs.dtype()).to(outputs.device()); };
  if (options_.components > 0) {
    const Tensor each = log_likelihoods(like_outputs(batch.elements), outputs);
    return neg(mean(average_valid_rows(reshape(each, {each.size(0), each.size(1), 1}), batch.lengths)));
  }
  const Tensor error = sub(reshape(outputs, {outputs.size(0)}), like_outputs(batch.targets));
  return mean(add(relu(error), relu(neg(error))));
}

std::vector<std::string> SetTransformer::score_names() const {
  if (options_.components == 0) return {"mean_absolute_error"};
  return {"nats_per_element", "log_likelihood", "oracle_log_likelihood"};
}

std::vector<double> SetTransformer::compute_scores(const Batch& batch, uint64_t seed) const {
  const NoGradScope no_grad;
  const double result = compute_loss(batch, {.seed = seed}).item();
  if (options_.components == 0) return {result};
  return {result, -result, mean(batch.targets).item()};
}

}  // namespace tapeformer
