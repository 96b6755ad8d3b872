#include "models/autoregressive_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/chunked.h"
#include "ops/elementwise.h"
#include "ops/logistic_mixture.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const AutoregressiveModelOptions& check_options(const AutoregressiveModelOptions& options) {
  const std::vector<OptionProblem> problems = find_option_problems(options);
  if (!problems.empty()) throw OptionError(problems.front());
  if (const std::string text =
          describe_unsupported(options.encoder.attention, "causal form", &AttentionCapabilities::causal);
      !text.empty())
    throw OptionError("attention", text);
  check_attention_length(options.encoder.attention, options.max_length);
  if (options.position_kind == PositionKind::grid && options.layout.length() <= 0)
    throw OptionError("positions", "grid positions need images");
  return options;
}

EncoderOptions with_max_length(EncoderOptions options, int64_t max_length) {
  options.max_length = max_length;
  return options;
}

double choose_embedding_std(const AutoregressiveModelOptions& options) {
  return options.tied_embeddings ? 1 / std::sqrt(static_cast<double>(options.encoder.width())) : 1;
}

Tensor make_positions(const AutoregressiveModelOptions& options) {
  const int64_t dim = options.encoder.width() - options.value_embedding_width();
  if (!options.concatenates_positions()) return Tensor::zeros({options.max_length, 0});
  const Tensor table = options.position_kind == PositionKind::grid
                           ? make_grid_position_features(options.layout, options.max_length, dim)
                           : make_sinusoidal_position_features(options.max_length, dim);
  return table.to(DType::float32);
}

// Returns the tokens to predict as (batch * length,).
Tensor flatten_targets(const Batch& batch) {
  const Tensor& tokens = batch.tokens;
  return reshape(batch.token_targets.defined() ? batch.token_targets : slice(tokens, 1, 1, tokens.size(1)),
                 {-1});
}

}  // namespace

std::vector<OptionProblem> find_option_problems(const AutoregressiveModelOptions& options) {
  std::vector<OptionProblem> problems = find_option_problems(options.encoder);
  const int64_t width = options.encoder.width();
  if (options.position_kind == PositionKind::axial)
    for (const OptionProblem& problem : find_option_problems(options.axial_shape, width, options.max_length))
      problems.push_back(problem);
  if (options.position_kind == PositionKind::learned && options.position_count > 0 &&
      options.position_count < options.max_length)
    problems.push_back({"position_count", concat_text("expected at least the length of the sequences, ",
                                                      options.max_length, ", got ", options.position_count)});
  if (!options.concatenates_positions()) {
    if (options.value_embedding_dim != 0)
      problems.push_back({"value_dim", concat_text("only sinusoidal and grid positions share the width with "
                                                   "value embeddings: expected 0, got ",
                                                   options.value_embedding_dim)});
  } else if (options.value_embedding_width() >= width) {
    problems.push_back({"value_dim", concat_text("expected less than the width, ", width, ", got ",
                                                 options.value_embedding_width())});
  } else if (options.value_embedding_width() <= 0) {
    problems.push_back(
        {"value_dim", concat_text("the width, ", width, ", is too small for values and positions")});
  }
  if (const int64_t memory = compute_max_input_memory_span(options.encoder.attention);
      memory > 0 && (options.position_kind != PositionKind::none || options.encoder.rotary))
    problems.push_back(
        {"positions", concat_text("a segment memory of ", memory,
                                  " tokens needs relative positions only: expected \"none\", or a "
                                  "memory of 0")});
  if (options.tied_embeddings && options.value_embedding_width() != options.encoder.output_width())
    problems.push_back(
        {"tied_embeddings",
         concat_text("embeddings have ", options.value_embedding_width(), " features and the predictor ",
                     options.encoder.output_width(),
                     ": use axial, learned, rotary or no positions and no reversible layers")});
  return problems;
}

AutoregressiveModel::AutoregressiveModel(const AutoregressiveModelOptions& options)
    : value_embedding(check_options(options).vocabulary_size, options.value_embedding_width(),
                      choose_embedding_std(options)),
      axial_positions(options.position_kind == PositionKind::axial
                          ? std::make_unique<AxialPositions>(options.axial_shape, options.max_length)
                          : nullptr),
      encoder(with_max_length(options.encoder, options.max_length)),
      predictor(options.encoder.output_width(), options.output_width(),
                {.owns_weight = !options.tied_embeddings, .has_bias = options.predictor_bias}),
      position_features(make_positions(options)),
      options_(options) {
  add_child("value_embedding", value_embedding);
  if (axial_positions) add_child("positions", *axial_positions);
  if (options.position_kind == PositionKind::learned)
    add_parameter("position_embedding.weight", learned_positions,
                  {std::max(options.position_count, options.max_length), options.encoder.width()},
                  [](const Tensor& table, const RandomStream&) {
                    table.copy_from(make_sinusoidal_position_features(table.size(0), table.size(1)));
                  });
  add_child("", encoder);
  add_child("predictor", predictor);
  if (options.tied_embeddings) add_alias(predictor.weight, value_embedding.weight);
  add_buffer("positions", position_features);
}

Tensor AutoregressiveModel::encode(const Tensor& inputs, const ForwardContext& context) const {
  check(inputs.rank() == 2 && inputs.size(1) <= options_.max_length, "model", "inputs ", inputs.shape(),
        " must be (batch, length) with length at most ", options_.max_length);
  return encoder.forward(embed(inputs), {.causal = true, .key_lengths = {}}, context);
}

Tensor AutoregressiveModel::embed(const Tensor& inputs, int64_t first) const {
  const int64_t last = first + inputs.size(1);
  const Tensor values = value_embedding.forward(inputs);
  if (axial_positions) {
    const Tensor positions = axial_positions->forward(last);
    return add(values, first > 0 ? slice(positions, 0, first, last) : positions);
  }
  if (learned_positions.defined()) return add(values, slice(learned_positions, 0, first, last));
  if (!options_.concatenates_positions()) return values;
  const Tensor features = slice(position_features, 0, first, last);
  return concat({values, broadcast_to(features, {inputs.size(0), inputs.size(1), features.size(1)})}, -1);
}

Tensor AutoregressiveModel::forward(const Tensor& inputs, const ForwardContext& context) const {
  return predictor.forward(encode(inputs, context));
}

Tensor AutoregressiveModel::compute_mean_loss(const Tensor& outputs, const Tensor& targets,
                                              const Tensor& weights,
                                              const CrossEntropyOptions& options) const {
  if (options_.head == OutputHead::categorical) return cross_entropy(outputs, targets, weights, options);
  return logistic_mixture_loss(outputs, targets, {.row_mask = weights});
}

AutoregressiveModel::LossInputs AutoregressiveModel::encode_batch(const Batch& batch,
                                                                  const ForwardContext& context) const {
  const Tensor encoded = encode(slice(batch.tokens, 1, 0, -1), context);
  return {{reshape(encoded, {encoded.size(0) * encoded.size(1), encoded.size(2)}), flatten_targets(batch),
           batch.mask.defined() ? reshape(batch.mask, {-1}) : Tensor{}},
          context.training ? options_.training_loss_options : CrossEntropyOptions{}};
}

Tensor AutoregressiveModel::compute_loss(const LossInputs& inputs) const {
  return compute_predictor_loss(predictor, inputs.rows, options_.loss_chunks,
                                [&](const Tensor& outputs, const Tensor& targets, const Tensor& weights) {
                                  return compute_mean_loss(outputs, targets, weights, inputs.loss_options);
                                });
}

// Divides the rows into `loss_chunks` chunks, as the computation of the loss does. Only the outputs of one
// chunk are in memory at a time, so the outputs do not increase the peak memory.
double AutoregressiveModel::compute_accuracy(const PredictorRows& inputs) const {
  double correct = 0, total = 0;
  for_each_chunk(inputs.encoded.size(0), options_.loss_chunks, [&](int64_t first, int64_t last) {
    const auto predictions = argmax(predictor.forward(view_rows(inputs.encoded, first, last))).to_vector(),
               targets = view_rows(inputs.targets, first, last).to_vector(),
               weights = inputs.weights.defined() ? view_rows(inputs.weights, first, last).to_vector()
                                                  : std::vector<double>(targets.size(), 1);
    for (size_t i = 0; i < targets.size(); ++i) {
      correct += weights[i] * (predictions[i] == targets[i]);
      total += weights[i];
    }
  });
  return total > 0 ? correct / total : 0;
}

Tensor AutoregressiveModel::compute_loss(const Batch& batch, const ForwardContext& context) const {
  return compute_loss(encode_batch(batch, context));
}

AutoregressiveModel::EvaluationScores AutoregressiveModel::compute_scores(const Batch& batch, uint64_t seed,
                                                                          SegmentMemory* memory) const {
  const NoGradScope no_grad;
  const LossInputs inputs = encode_batch(batch, {.seed = seed, .memory = memory});
  return {compute_loss(inputs).item(),
          options_.head == OutputHead::categorical ? compute_accuracy(inputs.rows) : -1};
}

}  // namespace tapeformer
