#include "models/encoder_step.h"

namespace tapeformer {
namespace {

// A (batch, heads, head_dim) buffer seen as (batch, width).
Tensor flat(const Tensor& x) {
  return x.view({x.size(0), x.size(1) * x.size(2)});
}

}  // namespace

EncoderStep::EncoderStep(const Encoder& encoder, int64_t batch, int64_t capacity) : encoder_(encoder) {
  const EncoderOptions& o = encoder.options();
  const Tensor& like = encoder.norm.weight;
  check(batch > 0, "EncoderStep", "batch ", batch, " must be positive");
  const StateShape shape{batch, o.heads, o.head_dim, o.head_dim, capacity, like.dtype(), like.device()};
  for (const auto& layer : encoder.layers) layers_.push_back(make_layer(*layer, shape));
  auto buffer = [&](const Shape& s) { return Tensor::empty(s, like.dtype(), like.device()); };
  for (Tensor* t : {&x_, &y_, &branch_}) *t = buffer({batch, o.width()});
  normalized_ = buffer({batch, o.output_width()});
  if (o.reversible) {
    other_ = buffer({batch, o.width()});
    joined_ = buffer({batch, 2 * o.width()});
    first_ = joined_.view({batch, o.width()}, {2 * o.width(), 1});
    second_ = joined_.view({batch, o.width()}, {2 * o.width(), 1}, o.width());
  }
  for (Tensor* t : {&query_, &key_, &value_, &attended_}) *t = buffer({batch, o.heads, o.head_dim});
  query_flat_ = flat(query_);
  key_flat_ = flat(key_);
  value_flat_ = flat(value_);
  attended_flat_ = flat(attended_);
  hidden_ = buffer({batch, o.feedforward});
  hidden_scratch_ = buffer({batch, o.feedforward});
}

EncoderStep::Layer EncoderStep::make_layer(const EncoderLayer& weights, const StateShape& shape) {
  const auto ready = [&](const Linear& linear) {
    return DecodingLinear(linear.weight, linear.bias, shape.batch);
  };
  const MultiHeadAttention& a = weights.attention;
  return {.weights = weights,
          .query = ready(a.query_projection),
          .key = a.shares_query_and_key() ? DecodingLinear{} : ready(a.key_projection),
          .value = ready(a.value_projection),
          .out = ready(a.out_projection),
          .linear1 = ready(weights.feedforward.linear1),
          .linear2 = ready(weights.feedforward.linear2),
          .state = a.kind().make_state(shape)};
}

int64_t EncoderStep::state_bytes() const {
  int64_t total = 0;
  for (const Layer& layer : layers_) total += layer.state->bytes();
  return total;
}

void EncoderStep::reset() {
  for (const Layer& layer : layers_) layer.state->reset();
}

// branch_ = attention(x), its projections included
void EncoderStep::attend(const Layer& layer, const Tensor& x) {
  const MultiHeadAttention& a = layer.weights.attention;
  layer.query.into(x, Activation::none, query_flat_);
  if (!a.shares_query_and_key()) layer.key.into(x, Activation::none, key_flat_);
  layer.value.into(x, Activation::none, value_flat_);
  a.kind().step(query_, a.shares_query_and_key() ? query_ : key_, value_, *layer.state, attended_);
  layer.out.into(attended_flat_, Activation::none, branch_);
}

// branch_ = feed_forward(x)
void EncoderStep::feed_forward(const Layer& layer, const Tensor& x) {
  layer.linear1.into(x, layer.weights.feedforward.activation(), hidden_, hidden_scratch_);
  layer.linear2.into(hidden_, Activation::none, branch_);
}

// x_ = layer(x_)
void EncoderStep::run_layer(const Layer& layer) {
  const LayerNorm &norm1 = layer.weights.norm1, &norm2 = layer.weights.norm2;
  if (layer.weights.pre_norm) {
    layer_norm_into(x_, {}, norm1.weight, norm1.bias, y_);
    attend(layer, y_);
    add_into(x_, branch_, x_);
    layer_norm_into(x_, {}, norm2.weight, norm2.bias, y_);
    feed_forward(layer, y_);
    add_into(x_, branch_, x_);
    return;
  }
  attend(layer, x_);
  layer_norm_into(x_, branch_, norm1.weight, norm1.bias, y_);
  feed_forward(layer, y_);
  layer_norm_into(y_, branch_, norm2.weight, norm2.bias, x_);
}

// x_, other_ = layer(x_, other_): the halves of models/reversible.h
void EncoderStep::run_reversible_layer(const Layer& layer) {
  const LayerNorm &norm1 = layer.weights.norm1, &norm2 = layer.weights.norm2;
  layer_norm_into(other_, {}, norm1.weight, norm1.bias, y_);
  attend(layer, y_);
  add_into(x_, branch_, x_);
  layer_norm_into(x_, {}, norm2.weight, norm2.bias, y_);
  feed_forward(layer, y_);
  add_into(other_, branch_, other_);
}

const Tensor& EncoderStep::step() {
  const bool reversible = encoder_.options().reversible;
  if (reversible) other_.copy_from(x_);
  for (const Layer& layer : layers_) {
    if (reversible)
      run_reversible_layer(layer);
    else
      run_layer(layer);
  }
  if (reversible) {
    first_.copy_from(x_);
    second_.copy_from(other_);
  }
  layer_norm_into(reversible ? joined_ : x_, {}, encoder_.norm.weight, encoder_.norm.bias, normalized_);
  return normalized_;
}

}  // namespace tapeformer
