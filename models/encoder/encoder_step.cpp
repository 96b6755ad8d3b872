#include "models/encoder/encoder_step.h"

#include "ops/linear.h"
#include "ops/rotary.h"
#include "ops/view.h"

namespace tapeformer {

EncoderStep::EncoderStep(const Encoder& encoder, int64_t batch, int64_t capacity) : encoder_(encoder) {
  const EncoderOptions& o = encoder.options();
  const Tensor& like = encoder.norm.weight;
  check(batch > 0, "EncoderStep", "batch ", batch, " must be positive");
  if (const std::string text =
          describe_unsupported(o.attention, "recurrent form", &AttentionCapabilities::recurrent);
      !text.empty())
    throw std::invalid_argument(text);
  AttentionStateOptions shape{batch, o.heads, o.head_dim, o.head_dim, capacity, like.dtype(), like.device()};
  const Tensor projections = Tensor::empty({3 * batch * o.width()}, like.dtype(), like.device());
  for (const auto& layer : encoder.layers) {
    shape.name = layer->name();
    layers_.push_back(make_layer(*layer, shape, projections));
    const AttentionLayerChoice& choice =
        find_layer_choice(o.attention, static_cast<int64_t>(layers_.size()) - 1);
    layers_.back().rounds_attention = find_attention_kind(choice.kind).capabilities.can_round_step_results;
    const SegmentMemorySize memory = find_attention_kind(choice.kind).get_memory_size(choice.options);
    if (memory.compressed > 0)
      layers_.back().span = Tensor::zeros({batch, memory.rate, o.width()}, like.dtype(), like.device());
  }
  const auto buffer = [&](const Shape& s) { return Tensor::empty(s, like.dtype(), like.device()); };
  for (Tensor* t : {&input_, &normalized_, &branch_result_}) *t = buffer({batch, o.width()});
  result_ = buffer({batch, o.output_width()});
  if (o.reversible) {
    second_ = buffer({batch, o.width()});
    concatenated_ = buffer({batch, 2 * o.width()});
    concatenated_first_ = concatenated_.view({batch, o.width()}, {2 * o.width(), 1});
    concatenated_second_ = concatenated_.view({batch, o.width()}, {2 * o.width(), 1}, o.width());
  }
  attended_ = buffer({batch, o.width()});
  // On the CPU, DecodingLinear takes operands in the dtype of the weights and rounds the operands itself.
  const DType operand = like.device().is_cpu() ? like.dtype() : get_operand_dtype(like);
  if (operand != like.dtype())
    for (Tensor* t : {&branch_operand_, &attended_operand_})
      *t = Tensor::empty({batch, o.width()}, operand, like.device());
  hidden_ = Tensor::empty({batch, o.feedforward}, operand, like.device());
  hidden_scratch_ = Tensor::empty_like(hidden_);
}

EncoderStep::Layer EncoderStep::make_layer(const EncoderLayer& weights, const AttentionStateOptions& shape,
                                           const Tensor& buffer) {
  const auto prepare = [&](const Linear& linear) {
    return DecodingLinear(linear.weight, linear.bias, shape.batch);
  };
  const MultiHeadAttention& a = weights.attention;
  std::vector<Tensor> projections, biases;
  for (const Linear* projection : a.projections()) {
    projections.push_back(detach(projection->weight));
    biases.push_back(detach(projection->bias));
  }
  const auto count = static_cast<int64_t>(projections.size());
  const Tensor projected =
      buffer.view({shape.batch, count, shape.heads, shape.dim},
                  Shape{shape.batch, count, shape.heads, shape.dim}.contiguous_strides());
  return {.weights = weights,
          .projections = DecodingLinear(concat(projections, 0), concat(biases, 0), shape.batch),
          .out = prepare(a.out_projection),
          .linear1 = prepare(weights.feedforward.linear1),
          .linear2 = prepare(weights.feedforward.linear2),
          .projected = projected.view({shape.batch, count * shape.heads * shape.dim}),
          .heads = a.split_heads(unbind(projected, 1)),
          .state = a.inner_attention().make_state(shape),
          .rounds_attention = false,
          .span = {}};
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

// Executor of run_layer() that processes one token of every sequence. The results are stored in buffers of
// the EncoderStep. In post-norm layers, run_branch() returns the input of the last linear layer of the
// branch, and normalize_sum() computes the linear layer and the norm in one call.
struct EncoderStep::TokenExecutor {
  const EncoderStep& step;
  const Layer& layer;
  bool post_norm;

  NormResult norm(ResidualBranch branch, const Tensor& x) const {
    const LayerNorm& norm = layer.weights.norm(branch);
    layer_norm_into(x, {}, norm.weight, norm.bias, step.normalized_, step.branch_operand_);
    return {step.normalized_, step.branch_operand_};
  }
  static Tensor dropout(ResidualBranch, const Tensor& x) { return x; }
  static Tensor sum(const Tensor& residual, const Tensor& change) {
    add_into(residual, change, residual);
    return residual;
  }
  // The two branches write to different buffers, because layer_norm_into() does not work in place.
  NormResult normalize_sum(ResidualBranch branch, const Tensor& residual, const Tensor& change) const {
    const LayerNorm& norm = layer.weights.norm(branch);
    const Tensor& out = branch == ResidualBranch::attention ? step.normalized_ : step.input_;
    const DecodingLinear& last = branch == ResidualBranch::attention ? layer.out : layer.linear2;
    last.forward_norm_into(change, residual, norm.weight, norm.bias, step.branch_result_, out,
                           step.branch_operand_);
    return {out, step.branch_operand_};
  }
  Tensor run_branch(ResidualBranch branch, const Tensor& input, const Tensor& operand) const {
    const Tensor& x = operand.defined() ? operand : input;
    if (branch == ResidualBranch::attention) {
      const Tensor change = run_attention(*this, x);
      if (layer.span.defined()) compress(input);
      return change;
    }
    layer.linear1.forward_into(x, layer.weights.feedforward.activation(), step.hidden_, step.hidden_scratch_);
    if (post_norm) return step.hidden_;
    layer.linear2.forward_into(step.hidden_, Activation::none, step.branch_result_);
    return step.branch_result_;
  }

  // Stores x (batch, width), the input of the attention, in layer.span. If layer.span is full, compresses it
  // to one row and appends the row to the state. In a captured graph, `slot` is constant, so the compressed
  // rows are wrong. Results do not depend on these rows, because a graph decodes at most one segment, and
  // only queries of later segments attend to the rows.
  void compress(const Tensor& x) const {
    const int64_t batch = x.size(0), width = x.size(1), rate = layer.span.size(1);
    const int64_t slot = step.position_ % rate;
    slice(layer.span, 1, slot, slot + 1).copy_from(reshape(x, {batch, 1, width}));
    if (slot + 1 < rate) return;
    const MultiHeadAttention& a = layer.weights.attention;
    const Tensor row = reshape(a.inner_attention().compress(layer.span), {batch, width});
    const auto heads = [&](const Linear& projection) {
      return reshape(linear(row, projection.weight, projection.bias), layer.heads.value.shape());
    };
    a.inner_attention().append_compressed(heads(a.key_projection), heads(a.value_projection), *layer.state);
  }

  ProjectedHeads project(const Tensor& x) const {
    layer.projections.forward_into(x, Activation::none, layer.projected);
    return layer.heads;
  }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const bool rounded = step.attended_operand_.defined();
    const Tensor& out = rounded && layer.rounds_attention ? step.attended_operand_ : step.attended_;
    layer.weights.attention.inner_attention().step(q, k, v, *layer.state, out.view(v.shape()));
    if (rounded && !layer.rounds_attention) step.attended_operand_.copy_from(step.attended_);
    return rounded ? step.attended_operand_ : step.attended_;
  }
  Tensor rotate(const Tensor& x) const {
    if (layer.weights.attention.is_rotary()) rotary_step(x, {.first_position = step.position_});
    return x;
  }
  Tensor output(const Tensor& attended) const {
    if (post_norm) return attended;
    layer.out.forward_into(attended, Activation::none, step.branch_result_);
    return step.branch_result_;
  }
};

const Tensor& EncoderStep::step() {
  const NoGradScope no_grad;
  const ResidualForm form = choose_residual_form(encoder_.options());
  LayerState state{input_};
  if (form == ResidualForm::reversible) {
    second_.copy_from(input_);
    state.second = second_;
  }
  if (form == ResidualForm::post_norm && branch_operand_.defined()) {
    branch_operand_.copy_from(input_);
    state.operand = branch_operand_;
  }
  for (const Layer& layer : layers_)
    run_layer(form, TokenExecutor{*this, layer, form == ResidualForm::post_norm}, state);
  ++position_;
  if (form == ResidualForm::reversible) {
    concatenated_first_.copy_from(state.first);
    concatenated_second_.copy_from(state.second);
  }
  const LayerNorm& norm = encoder_.norm;
  layer_norm_into(state.second.defined() ? concatenated_ : state.first, {}, norm.weight, norm.bias, result_);
  return result_;
}

}  // namespace tapeformer
