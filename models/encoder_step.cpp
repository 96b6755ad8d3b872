#include "models/encoder_step.h"

#include "ops/inference.h"

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
  for (const auto& layer : encoder.layers) states_.push_back(layer->attention.kind().make_state(shape));
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

int64_t EncoderStep::state_bytes() const {
  int64_t total = 0;
  for (const auto& state : states_) total += state->bytes();
  return total;
}

void EncoderStep::reset() {
  for (const auto& state : states_) state->reset();
}

// branch_ = attention(x), its projections included
void EncoderStep::attend(const EncoderLayer& layer, AttentionState& state, const Tensor& x) {
  const MultiHeadAttention& a = layer.attention;
  linear_into(x, a.query_projection.weight, a.query_projection.bias, Activation::none, query_flat_);
  if (!a.shares_query_and_key())
    linear_into(x, a.key_projection.weight, a.key_projection.bias, Activation::none, key_flat_);
  linear_into(x, a.value_projection.weight, a.value_projection.bias, Activation::none, value_flat_);
  a.kind().step(query_, a.shares_query_and_key() ? query_ : key_, value_, state, attended_);
  linear_into(attended_flat_, a.out_projection.weight, a.out_projection.bias, Activation::none, branch_);
}

// branch_ = feed_forward(x)
void EncoderStep::feed_forward(const EncoderLayer& layer, const Tensor& x) {
  const FeedForward& f = layer.feedforward;
  linear_into(x, f.linear1.weight, f.linear1.bias, f.activation(), hidden_, hidden_scratch_);
  linear_into(hidden_, f.linear2.weight, f.linear2.bias, Activation::none, branch_);
}

// x_ = layer(x_)
void EncoderStep::run_layer(const EncoderLayer& layer, AttentionState& state) {
  if (layer.pre_norm) {
    layer_norm_into(x_, {}, layer.norm1.weight, layer.norm1.bias, y_);
    attend(layer, state, y_);
    add_into(x_, branch_, x_);
    layer_norm_into(x_, {}, layer.norm2.weight, layer.norm2.bias, y_);
    feed_forward(layer, y_);
    add_into(x_, branch_, x_);
    return;
  }
  attend(layer, state, x_);
  layer_norm_into(x_, branch_, layer.norm1.weight, layer.norm1.bias, y_);
  feed_forward(layer, y_);
  layer_norm_into(y_, branch_, layer.norm2.weight, layer.norm2.bias, x_);
}

// x_, other_ = layer(x_, other_): the halves of models/reversible.h
void EncoderStep::run_reversible_layer(const EncoderLayer& layer, AttentionState& state) {
  layer_norm_into(other_, {}, layer.norm1.weight, layer.norm1.bias, y_);
  attend(layer, state, y_);
  add_into(x_, branch_, x_);
  layer_norm_into(x_, {}, layer.norm2.weight, layer.norm2.bias, y_);
  feed_forward(layer, y_);
  add_into(other_, branch_, other_);
}

const Tensor& EncoderStep::step() {
  const bool reversible = encoder_.options().reversible;
  if (reversible) other_.copy_from(x_);
  for (size_t i = 0; i < states_.size(); ++i) {
    const EncoderLayer& layer = *encoder_.layers[i];
    if (reversible)
      run_reversible_layer(layer, *states_[i]);
    else
      run_layer(layer, *states_[i]);
  }
  if (reversible) {
    first_.copy_from(x_);
    second_.copy_from(other_);
  }
  layer_norm_into(reversible ? joined_ : x_, {}, encoder_.norm.weight, encoder_.norm.bias, normalized_);
  return normalized_;
}

}  // namespace tapeformer
