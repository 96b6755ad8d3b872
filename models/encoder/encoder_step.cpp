#include "models/encoder/encoder_step.h"

#include "ops/rotary.h"

namespace tapeformer {

EncoderStep::EncoderStep(const Encoder& encoder, int64_t batch, int64_t capacity) : encoder_(encoder) {
  const EncoderOptions& o = encoder.options();
  const Tensor& like = encoder.norm.weight;
  check(batch > 0, "EncoderStep", "batch ", batch, " must be positive");
  if (const std::string text =
          unsupported_text(o.attention, "recurrent form", &AttentionCapabilities::recurrent);
      !text.empty())
    throw std::invalid_argument(text);
  StateShape shape{batch, o.heads, o.head_dim, o.head_dim, capacity, like.dtype(), like.device()};
  for (const auto& layer : encoder.layers) {
    shape.name = layer->name();
    layers_.push_back(make_layer(*layer, shape));
  }
  const auto buffer = [&](const Shape& s) { return Tensor::empty(s, like.dtype(), like.device()); };
  for (Tensor* t : {&x_, &normalized_, &change_}) *t = buffer({batch, o.width()});
  result_ = buffer({batch, o.output_width()});
  if (o.reversible) {
    second_ = buffer({batch, o.width()});
    joined_ = buffer({batch, 2 * o.width()});
    joined_first_ = joined_.view({batch, o.width()}, {2 * o.width(), 1});
    joined_second_ = joined_.view({batch, o.width()}, {2 * o.width(), 1}, o.width());
  }
  for (HeadBuffer* b : {&query_, &key_, &value_, &attended_}) {
    b->heads = buffer({batch, o.heads, o.head_dim});
    b->rows = b->heads.view({batch, o.width()});
  }
  hidden_ = buffer({batch, o.feedforward});
  hidden_scratch_ = buffer({batch, o.feedforward});
}

EncoderStep::Layer EncoderStep::make_layer(const EncoderLayer& weights, const StateShape& shape) {
  const auto prepare = [&](const Linear& linear) {
    return DecodingLinear(linear.weight, linear.bias, shape.batch);
  };
  const MultiHeadAttention& a = weights.attention;
  return {.weights = weights,
          .query = a.inputs().queries ? prepare(a.query_projection) : DecodingLinear{},
          .key = a.inputs().keys ? prepare(a.key_projection) : DecodingLinear{},
          .value = prepare(a.value_projection),
          .out = prepare(a.out_projection),
          .linear1 = prepare(weights.feedforward.linear1),
          .linear2 = prepare(weights.feedforward.linear2),
          .state = a.kind().make_state(shape)};
}

int64_t EncoderStep::state_bytes() const {
  int64_t total = 0;
  for (const Layer& layer : layers_) total += layer.state->bytes();
  return total;
}

void EncoderStep::reset() {
  position_ = 0;
  for (const Layer& layer : layers_) layer.state->reset();
}

// Executor of run_layer() for one token. Results are views of the buffers of the step.
struct EncoderStep::OneToken {
  const EncoderStep& step;
  const Layer& layer;

  Tensor norm(Branch branch, const Tensor& x) const {
    const LayerNorm& norm = layer.weights.norm(branch);
    layer_norm_into(x, {}, norm.weight, norm.bias, step.normalized_);
    return step.normalized_;
  }
  static Tensor dropout(Branch, const Tensor& x) { return x; }
  static Tensor sum(const Tensor& residual, const Tensor& change) {
    add_into(residual, change, residual);
    return residual;
  }
  // Alternates between two buffers, because layer_norm_into() does not work in place.
  Tensor norm_of_sum(Branch branch, const Tensor& residual, const Tensor& change) const {
    const LayerNorm& norm = layer.weights.norm(branch);
    const Tensor& out = branch == Branch::attention ? step.normalized_ : step.x_;
    layer_norm_into(residual, change, norm.weight, norm.bias, out);
    return out;
  }
  Tensor apply(Branch branch, const Tensor& x) const {
    if (branch == Branch::attention) return run_attention(*this, x);
    layer.linear1.into(x, layer.weights.feedforward.activation(), step.hidden_, step.hidden_scratch_);
    layer.linear2.into(step.hidden_, Activation::none, step.change_);
    return step.change_;
  }

  AttentionInputs inputs() const { return layer.weights.attention.inputs(); }
  Tensor query(const Tensor& x) const { return rotated(heads(layer.query, x, step.query_)); }
  Tensor key(const Tensor& x) const { return rotated(heads(layer.key, x, step.key_)); }
  Tensor value(const Tensor& x) const { return heads(layer.value, x, step.value_); }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    layer.weights.attention.kind().step(q, k, v, *layer.state, step.attended_.heads);
    return step.attended_.rows;
  }
  Tensor rotated(const Tensor& x) const {
    if (layer.weights.attention.is_rotary()) rotary_step(x, {.first_position = step.position_});
    return x;
  }
  Tensor output(const Tensor& attended) const {
    layer.out.into(attended, Activation::none, step.change_);
    return step.change_;
  }
  static Tensor heads(const DecodingLinear& projection, const Tensor& x, const HeadBuffer& out) {
    projection.into(x, Activation::none, out.rows);
    return out.heads;
  }
};

const Tensor& EncoderStep::step() {
  const ResidualForm form = residual_form(encoder_.options());
  LayerState state{x_, {}};
  if (form == ResidualForm::reversible) {
    second_.copy_from(x_);
    state.second = second_;
  }
  for (const Layer& layer : layers_) run_layer(form, OneToken{*this, layer}, state);
  ++position_;
  if (form == ResidualForm::reversible) {
    joined_first_.copy_from(state.first);
    joined_second_.copy_from(state.second);
  }
  const LayerNorm& norm = encoder_.norm;
  layer_norm_into(state.second.defined() ? joined_ : state.first, {}, norm.weight, norm.bias, result_);
  return result_;
}

}  // namespace tapeformer
