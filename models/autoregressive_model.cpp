#include "models/autoregressive_model.h"

#include "ops/logistic_mixture.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const AutoregressiveOptions& checked(const AutoregressiveOptions& options) {
  const int64_t width = options.encoder.width(), value = options.value_width();
  if (value <= 0 || value >= width)
    throw ConfigError(concat_text("model.value_dim ", value, " must lie between 1 and the width ", width,
                                  " (heads × head_dim) less one"));
  if (!attention_kind(options.encoder.attention).capabilities.causal)
    throw ConfigError("attention kind \"" + options.encoder.attention + "\" has no causal form");
  if (options.positions == Positions::grid && options.layout.length() <= 0)
    throw ConfigError("model.positions = \"grid\" needs images");
  return options;
}

Tensor make_positions(const AutoregressiveOptions& options) {
  const int64_t dim = options.encoder.width() - options.value_width();
  const Tensor table = options.positions == Positions::grid
                           ? grid_positions(options.layout, options.max_length, dim)
                           : sinusoidal_positions(options.max_length, dim);
  return table.to(DType::float32);
}

// The tokens that are predicted, (batch * length,) int64.
Tensor flat_targets(const Tensor& tokens) {
  return reshape(slice(tokens, 1, 1, tokens.size(1)), {-1});
}

}  // namespace

AutoregressiveModel::AutoregressiveModel(const AutoregressiveOptions& options)
    : value_embedding(checked(options).vocabulary, options.value_width()),
      encoder(options.encoder),
      predictor(options.encoder.width(), options.outputs()),
      positions(make_positions(options)),
      options_(options) {
  add_child("value_embedding", value_embedding);
  add_child("", encoder);
  add_child("predictor", predictor);
  add_buffer("positions", positions);
}

Tensor AutoregressiveModel::forward(const Tensor& inputs, const ForwardContext& context) const {
  check(inputs.rank() == 2 && inputs.size(1) <= options_.max_length, "model", "inputs ", inputs.shape(),
        " must be (batch, length) with length at most ", options_.max_length);
  const Tensor values = value_embedding.forward(inputs);
  const Tensor places = slice(positions, 0, 0, inputs.size(1));
  const Tensor x =
      concat({values, broadcast_to(places, {inputs.size(0), inputs.size(1), places.size(1)})}, -1);
  return predictor.forward(encoder.forward(x, {.causal = true, .key_lengths = {}}, context));
}

Tensor AutoregressiveModel::flat_loss(const Tensor& outputs, const Batch& batch) const {
  const Tensor rows = reshape(outputs, {-1, options_.outputs()});
  const Tensor targets = flat_targets(batch.tokens);
  const Tensor weights = batch.mask.defined() ? reshape(batch.mask, {-1}) : Tensor{};
  if (options_.head == Head::categorical) return cross_entropy(rows, targets, weights);
  return logistic_mixture_loss(rows, targets, {.row_mask = weights});
}

Tensor AutoregressiveModel::loss(const Batch& batch, const ForwardContext& context) const {
  return flat_loss(forward(slice(batch.tokens, 1, 0, -1), context), batch);
}

double AutoregressiveModel::accuracy(const Batch& batch) const {
  check(options_.head == Head::categorical, "accuracy", "the model predicts mixtures, not classes");
  const NoGrad no_grad;
  const Tensor outputs = forward(slice(batch.tokens, 1, 0, -1), {});
  const auto guesses = argmax(outputs).to_vector(), targets = flat_targets(batch.tokens).to_vector();
  const auto weights = batch.mask.defined() ? batch.mask.to_vector() : std::vector<double>(targets.size(), 1);
  double right = 0, counted = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    right += weights[i] * (guesses[i] == targets[i]);
    counted += weights[i];
  }
  return counted > 0 ? right / counted : 0;
}

}  // namespace tapeformer
