#include "models/autoregressive_model.h"

#include <algorithm>

#include "autograd/chunked.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/logistic_mixture.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const AutoregressiveOptions& checked(const AutoregressiveOptions& options) {
  const int64_t width = options.encoder.width(), value = options.value_width();
  const bool axial = options.positions == Positions::axial;
  if (axial && options.value_dim != 0)
    throw ConfigError(
        "axial positions are added to a value embedding of the whole width: set model.value_dim = 0");
  if (axial) check_axial(options.axial, options.max_length, width);
  if (!axial && (value <= 0 || value >= width))
    throw ConfigError(concat_text("model.value_dim ", value, " must lie between 1 and the width ", width,
                                  " (heads × head_dim) less one"));
  const AttentionKind& kind = attention_kind(options.encoder.attention);
  if (!kind.capabilities.causal)
    throw ConfigError("attention kind \"" + options.encoder.attention + "\" has no causal form");
  if (kind.check_length) kind.check_length(options.encoder.attention_options, options.max_length);
  if (options.positions == Positions::grid && options.layout.length() <= 0)
    throw ConfigError("model.positions = \"grid\" needs images");
  return options;
}

Tensor make_positions(const AutoregressiveOptions& options) {
  const int64_t dim = options.encoder.width() - options.value_width();
  if (options.positions == Positions::axial) return Tensor::zeros({options.max_length, 0});
  const Tensor table = options.positions == Positions::grid
                           ? grid_positions(options.layout, options.max_length, dim)
                           : sinusoidal_positions(options.max_length, dim);
  return table.to(DType::float32);
}

// The tokens that are predicted, (batch * length,) int64.
Tensor flat_targets(const Tensor& tokens) {
  return reshape(slice(tokens, 1, 1, tokens.size(1)), {-1});
}

double counted_rows(const Tensor& targets, const Tensor& weights) {
  if (!weights.defined()) return static_cast<double>(targets.numel());
  const uint8_t* const counts = weights.data<uint8_t>();
  return static_cast<double>(
      std::count_if(counts, counts + weights.numel(), [](uint8_t w) { return w != 0; }));
}

}  // namespace

AutoregressiveModel::AutoregressiveModel(const AutoregressiveOptions& options)
    : value_embedding(checked(options).vocabulary, options.value_width()),
      axial_positions(options.positions == Positions::axial
                          ? std::make_unique<AxialPositions>(options.axial, options.max_length)
                          : nullptr),
      encoder(options.encoder),
      predictor(options.encoder.output_width(), options.outputs()),
      positions(make_positions(options)),
      options_(options) {
  add_child("value_embedding", value_embedding);
  if (axial_positions) add_child("positions", *axial_positions);
  add_child("", encoder);
  add_child("predictor", predictor);
  add_buffer("positions", positions);
}

Tensor AutoregressiveModel::encode(const Tensor& inputs, const ForwardContext& context) const {
  check(inputs.rank() == 2 && inputs.size(1) <= options_.max_length, "model", "inputs ", inputs.shape(),
        " must be (batch, length) with length at most ", options_.max_length);
  const Tensor values = value_embedding.forward(inputs);
  const Tensor x = [&] {
    if (axial_positions) return add(values, axial_positions->forward(inputs.size(1)));
    const Tensor places = slice(positions, 0, 0, inputs.size(1));
    return concat({values, broadcast_to(places, {inputs.size(0), inputs.size(1), places.size(1)})}, -1);
  }();
  return encoder.forward(x, {.causal = true, .key_lengths = {}}, context);
}

Tensor AutoregressiveModel::forward(const Tensor& inputs, const ForwardContext& context) const {
  return predictor.forward(encode(inputs, context));
}

Tensor AutoregressiveModel::row_loss(const Tensor& outputs, const Tensor& targets,
                                     const Tensor& weights) const {
  if (options_.head == Head::categorical) return cross_entropy(outputs, targets, weights);
  return logistic_mixture_loss(outputs, targets, {.row_mask = weights});
}

// The mean over all rows is the sum of the chunks' means, each times its share of the counted rows.
Tensor AutoregressiveModel::chunked_loss(const Tensor& rows, const Tensor& targets,
                                         const Tensor& weights) const {
  const double total = counted_rows(targets, weights);
  const auto part = [&](const Tensor& piece, const std::vector<Tensor>& parameters, int64_t first) {
    const int64_t last = first + piece.size(0);
    const Tensor part_targets = rows_of(targets, first, last);
    const Tensor part_weights = weights.defined() ? rows_of(weights, first, last) : Tensor{};
    const double share = total > 0 ? counted_rows(part_targets, part_weights) / total : 0;
    return mul(row_loss(linear(piece, parameters[0], parameters[1]), part_targets, part_weights), share);
  };
  const auto multiply = [](const Tensor& x, const Tensor& factor) { return mul(x, factor); };
  return chunked_sum(part, rows, options_.loss_chunks, {predictor.weight, predictor.bias}, multiply);
}

AutoregressiveModel::Rows AutoregressiveModel::rows_of_batch(const Batch& batch,
                                                             const ForwardContext& context) const {
  const Tensor encoded = encode(slice(batch.tokens, 1, 0, -1), context);
  return {reshape(encoded, {encoded.size(0) * encoded.size(1), encoded.size(2)}), flat_targets(batch.tokens),
          batch.mask.defined() ? reshape(batch.mask, {-1}) : Tensor{}};
}

Tensor AutoregressiveModel::loss_of(const Rows& rows) const {
  if (options_.loss_chunks > 1) return chunked_loss(rows.encoded, rows.targets, rows.weights);
  return row_loss(predictor.forward(rows.encoded), rows.targets, rows.weights);
}

// As many chunks as the loss has, so that the outputs take no more memory here.
double AutoregressiveModel::accuracy_of(const Rows& rows) const {
  double right = 0, counted = 0;
  for_each_chunk(rows.encoded.size(0), options_.loss_chunks, [&](int64_t first, int64_t last) {
    const auto guesses = argmax(predictor.forward(rows_of(rows.encoded, first, last))).to_vector(),
               targets = rows_of(rows.targets, first, last).to_vector(),
               weights = rows.weights.defined() ? rows_of(rows.weights, first, last).to_vector()
                                                : std::vector<double>(targets.size(), 1);
    for (size_t i = 0; i < targets.size(); ++i) {
      right += weights[i] * (guesses[i] == targets[i]);
      counted += weights[i];
    }
  });
  return counted > 0 ? right / counted : 0;
}

Tensor AutoregressiveModel::loss(const Batch& batch, const ForwardContext& context) const {
  return loss_of(rows_of_batch(batch, context));
}

AutoregressiveModel::Scores AutoregressiveModel::score(const Batch& batch, uint64_t seed) const {
  const NoGrad no_grad;
  const Rows rows = rows_of_batch(batch, {.seed = seed});
  return {loss_of(rows).item(), options_.head == Head::categorical ? accuracy_of(rows) : -1};
}

}  // namespace tapeformer
