#include "models/decoder.h"

#include "ops/inference.h"

namespace tapeformer {
namespace {

// A (batch, heads, head_dim) buffer seen as (batch, width).
Tensor flat(const Tensor& x) {
  return x.view({x.size(0), x.size(1) * x.size(2)});
}

}  // namespace

Decoder::Decoder(const AutoregressiveModel& model, int64_t batch) : model_(model), batch_(batch) {
  const EncoderOptions& o = model.encoder.options();
  const Tensor& like = model.predictor.weight;
  check(batch > 0, "Decoder", "batch ", batch, " must be positive");
  const StateShape shape{batch,        o.heads,      o.head_dim, o.head_dim, model.options().max_length,
                         like.dtype(), like.device()};
  for (const auto& layer : model.encoder.layers) states_.push_back(layer->attention.kind().make_state(shape));
  auto buffer = [&](const Shape& s) { return Tensor::empty(s, like.dtype(), like.device()); };
  for (Tensor* t : {&x_, &y_, &branch_}) *t = buffer({batch, o.width()});
  for (Tensor* t : {&query_, &key_, &value_, &attended_}) *t = buffer({batch, o.heads, o.head_dim});
  query_flat_ = flat(query_);
  key_flat_ = flat(key_);
  value_flat_ = flat(value_);
  attended_flat_ = flat(attended_);
  hidden_ = buffer({batch, o.feedforward});
  hidden_scratch_ = buffer({batch, o.feedforward});
  output_ = buffer({batch, model.options().outputs()});
}

int64_t Decoder::state_bytes() const {
  int64_t total = 0;
  for (const auto& state : states_) total += state->bytes();
  return total;
}

void Decoder::reset() {
  position_ = 0;
  for (const auto& state : states_) state->reset();
}

// branch_ = attention(x), its projections included
void Decoder::attend(const EncoderLayer& layer, AttentionState& state, const Tensor& x) {
  const MultiHeadAttention& a = layer.attention;
  linear_into(x, a.query_projection.weight, a.query_projection.bias, Activation::none, query_flat_);
  if (!a.shares_query_and_key())
    linear_into(x, a.key_projection.weight, a.key_projection.bias, Activation::none, key_flat_);
  linear_into(x, a.value_projection.weight, a.value_projection.bias, Activation::none, value_flat_);
  a.kind().step(query_, a.shares_query_and_key() ? query_ : key_, value_, state, attended_);
  linear_into(attended_flat_, a.out_projection.weight, a.out_projection.bias, Activation::none, branch_);
}

// branch_ = feed_forward(x)
void Decoder::feed_forward(const EncoderLayer& layer, const Tensor& x) {
  const FeedForward& f = layer.feedforward;
  linear_into(x, f.linear1.weight, f.linear1.bias, f.activation(), hidden_, hidden_scratch_);
  linear_into(hidden_, f.linear2.weight, f.linear2.bias, Activation::none, branch_);
}

// x_ = layer(x_)
void Decoder::run_layer(const EncoderLayer& layer, AttentionState& state) {
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

const Tensor& Decoder::step(const Tensor& tokens) {
  check(tokens.shape() == Shape{batch_}, "Decoder", "tokens ", tokens.shape(), " for a batch of ", batch_);
  embed_into(model_.value_embedding.weight, tokens, model_.positions, position_, x_);
  for (size_t i = 0; i < states_.size(); ++i) run_layer(*model_.encoder.layers[i], *states_[i]);
  layer_norm_into(x_, {}, model_.encoder.norm.weight, model_.encoder.norm.bias, y_);
  linear_into(y_, model_.predictor.weight, model_.predictor.bias, Activation::none, output_);
  ++position_;
  return output_;
}

}  // namespace tapeformer
