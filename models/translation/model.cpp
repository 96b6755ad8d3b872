#include "models/translation/model.h"

#include <cmath>

#include "autograd/chunked.h"
#include "models/layers/positions.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const TranslationModelOptions& check_options(const TranslationModelOptions& options) {
  const std::vector<OptionProblem> problems = find_option_problems(options);
  if (!problems.empty()) throw OptionError(problems.front());
  return options;
}

EncoderOptions make_stack_options(const TranslationModelOptions& options, bool is_decoder) {
  EncoderOptions stack = options.encoder;
  stack.causal = is_decoder;
  stack.max_length = options.max_length;
  stack.average_halves = true;
  stack.name = is_decoder ? "decoder." : "encoder.";
  if (!is_decoder) stack.cross_attention.clear();
  if (is_decoder && options.decoder_layers > 0) stack.layers = options.decoder_layers;
  return stack;
}

// Returns the numbers of ones in the rows of a mask, (rows,) int64.
Tensor count_valid_rows(const Tensor& mask) {
  const Tensor counts = Tensor::zeros({mask.size(0)}, DType::int64);
  const Tensor host = mask.to(kCpu);
  for (int64_t i = 0; i < host.numel(); ++i)
    counts.data<int64_t>()[i / host.size(1)] += host.data<uint8_t>()[i];
  return counts;
}

double choose_embedding_std(const TranslationModelOptions& options) {
  return options.shared_embeddings ? 1 / std::sqrt(static_cast<double>(options.encoder.width())) : 1;
}

}  // namespace

std::vector<OptionProblem> find_option_problems(const TranslationModelOptions& options) {
  std::vector<OptionProblem> problems = find_option_problems(options.encoder);
  const AttentionPattern& attention = options.encoder.attention;
  const auto require = [&](const char* what, Capability AttentionCapabilities::*capability) {
    const std::string text = describe_unsupported(attention, what, capability);
    if (!text.empty()) problems.push_back({"attention", text});
  };
  require("causal form, which the decoder needs", &AttentionCapabilities::causal);
  require("length masks, which sentences of different lengths need", &AttentionCapabilities::length_masks);
  if (compute_max_memory_span(attention) > 0)
    problems.push_back(
        {"attention",
         "sentences have no earlier segments: expected kinds whose memory is 0 and that carry no state"});
  if (options.encoder.cross_attention.empty())
    problems.push_back({"cross_attention", "expected a kind of attention"});
  return problems;
}

TranslationModel::TranslationModel(const TranslationModelOptions& options)
    : source_embedding(check_options(options).vocabulary_size, options.encoder.width(),
                       choose_embedding_std(options)),
      encoder(make_stack_options(options, false)),
      decoder(make_stack_options(options, true)),
      predictor(options.encoder.width(), options.vocabulary_size,
                {.owns_weight = !options.shared_embeddings}),
      options_(options) {
  const int64_t width = options.encoder.width();
  add_child(options.shared_embeddings ? "embedding" : "source_embedding", source_embedding);
  if (!options.shared_embeddings) {
    target_embedding = std::make_unique<Embedding>(options.vocabulary_size, width);
    add_child("target_embedding", *target_embedding);
  }
  const auto fill = [](const Tensor& table, const RandomStream&) {
    table.copy_from(make_sinusoidal_position_features(table.size(0), table.size(1)));
  };
  if (options.positions == AddedPositions::learned) {
    add_parameter("source_positions", source_positions, {options.max_length, width}, fill);
    add_parameter("target_positions", target_positions, {options.max_length, width}, fill);
  } else if (options.positions == AddedPositions::sinusoidal) {
    source_positions = make_sinusoidal_position_features(options.max_length, width).to(DType::float32);
    target_positions = source_positions;
    add_buffer("source_positions", source_positions);
    add_buffer("target_positions", target_positions);
  }
  add_child("", encoder);
  add_child("", decoder);
  add_child("predictor", predictor);
  if (options.shared_embeddings) add_alias(predictor.weight, source_embedding.weight);
}

double TranslationModel::embedding_scale() const {
  return options_.shared_embeddings ? std::sqrt(static_cast<double>(options_.encoder.width())) : 1;
}

Tensor TranslationModel::embed(const Embedding& embedding, const Tensor& positions, const Tensor& tokens,
                               const ForwardContext& context, const char* dropout_name) const {
  check(tokens.rank() == 2 && tokens.size(1) <= options_.max_length, "translation", "tokens ", tokens.shape(),
        " must be (batch, length) with length at most ", options_.max_length);
  Tensor x = embedding.forward(tokens);
  if (options_.shared_embeddings) x = mul(x, embedding_scale());
  if (positions.defined()) x = add(x, slice(positions, 0, 0, tokens.size(1)));
  const int64_t first = context.first_example * tokens.size(1) * x.size(2);
  return dropout(x, context.make_dropout_mask(options_.encoder.dropout, dropout_name).at_offset(first));
}

EncodedSource TranslationModel::encode(const Tensor& source, const Tensor& lengths,
                                       const ForwardContext& context) const {
  const Tensor x = embed(source_embedding, source_positions, source, context, "source_embedding");
  return {encoder.forward(x, {.causal = false, .key_lengths = lengths}, context), lengths};
}

Tensor TranslationModel::decode(const Tensor& inputs, const Tensor& lengths, const EncodedSource& source,
                                const ForwardContext& context) const {
  const Tensor x = embed(target_embeddings(), target_positions, inputs, context, "target_embedding");
  ForwardContext any_length = context;
  any_length.is_prefix = true;
  return decoder.forward(x, {.causal = true, .key_lengths = lengths}, any_length, source);
}

Tensor TranslationModel::forward(const Tensor& inputs, const EncodedSource& source,
                                 const ForwardContext& context) const {
  return predictor.forward(decode(inputs, {}, source, context));
}

Tensor TranslationModel::predict_next(const Tensor& inputs, const EncodedSource& source) const {
  const Tensor decoded = decode(inputs, {}, source, {});
  const int64_t length = decoded.size(1);
  return predictor.forward(
      reshape(slice(decoded, 1, length - 1, length), {decoded.size(0), decoded.size(2)}));
}

PredictorRows TranslationModel::decode_batch(const Batch& batch, const ForwardContext& context) const {
  const EncodedSource source = encode(batch.source, batch.source_lengths, context);
  const Tensor decoded = decode(slice(batch.tokens, 1, 0, -1), count_valid_rows(batch.mask), source, context);
  return {reshape(decoded, {decoded.size(0) * decoded.size(1), decoded.size(2)}),
          reshape(slice(batch.tokens, 1, 1, batch.tokens.size(1)), {-1}), reshape(batch.mask, {-1})};
}

Tensor TranslationModel::compute_loss(const Batch& batch, const ForwardContext& context) const {
  const CrossEntropyOptions loss_options{.label_smoothing = context.training ? options_.label_smoothing : 0};
  return compute_predictor_loss(predictor, decode_batch(batch, context), options_.loss_chunks,
                                [&](const Tensor& outputs, const Tensor& targets, const Tensor& weights) {
                                  return cross_entropy(outputs, targets, weights, loss_options);
                                });
}

Tensor TranslationModel::compute_token_losses(const Batch& batch) const {
  const NoGradScope no_grad;
  const PredictorRows rows = decode_batch(batch, {});
  const Tensor losses = Tensor::zeros({batch.tokens.size(0), batch.tokens.size(1) - 1}, DType::float64);
  const Tensor weights = rows.weights.to(kCpu), targets = rows.targets.to(kCpu);
  for_each_chunk(rows.encoded.size(0), options_.loss_chunks, [&](int64_t first, int64_t last) {
    const Tensor log_probabilities =
        log_softmax(predictor.forward(view_rows(rows.encoded, first, last))).to(kCpu).to(DType::float64);
    for (int64_t row = first; row < last; ++row)
      if (weights.data<uint8_t>()[row] != 0)
        losses.data<double>()[row] =
            -log_probabilities
                 .data<double>()[(row - first) * options_.vocabulary_size + targets.data<int64_t>()[row]];
  });
  return losses;
}

}  // namespace tapeformer
