#include "models/encoder/encoder_step.h"

#include "ops/linear.h"
#include "ops/rotary.h"
#include "ops/view.h"

namespace tapeformer {

RecurrentEncoder::RecurrentEncoder(const Encoder& encoder, int64_t batch, int64_t capacity)
    : encoder_(encoder) {
  const EncoderOptions& o = encoder.options();
  const Tensor& like = encoder.norm.weight;
  check(batch > 0, "RecurrentEncoder", "batch ", batch, " must be positive");
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
    layers_.back().can_round_result = find_attention_kind(choice.kind).capabilities.can_round_step_results;
  }
  const auto buffer = [&](const Shape& s) { return Tensor::empty(s, like.dtype(), like.device()); };
  for (Tensor* t : {&input_, &normalized_, &branch_result_}) *t = buffer({batch, o.width()});
  result_ = buffer({batch, o.output_width()});
  if (o.reversible) {
    second_half_ = buffer({batch, o.width()});
    concatenated_halves_ = buffer({batch, 2 * o.width()});
    first_half_view_ = concatenated_halves_.view({batch, o.width()}, {2 * o.width(), 1});
    second_half_view_ = concatenated_halves_.view({batch, o.width()}, {2 * o.width(), 1}, o.width());
  }
  attention_result_ = buffer({batch, o.width()});
  // On the CPU, DecodingLinear rounds its inputs, so bfloat16 copies of the inputs are not needed.
  const DType operand = like.device().is_cpu() ? like.dtype() : get_operand_dtype(like);
  if (operand != like.dtype())
    for (Tensor* t : {&branch_operand_, &attention_result_operand_})
      *t = Tensor::empty({batch, o.width()}, operand, like.device());
  hidden_ = Tensor::empty({batch, o.feedforward}, operand, like.device());
  hidden_scratch_ = Tensor::empty_like(hidden_);
}

RecurrentEncoder::Layer RecurrentEncoder::make_layer(const EncoderLayer& weights,
                                                     const AttentionStateOptions& shape,
                                                     const Tensor& buffer) {
  const auto prepare = [&](const Linear& linear) {
    return DecodingLinear(linear.weight, linear.bias, shape.batch);
  };
  const MultiHeadAttention& a = weights.attention;
  std::vector<Tensor> projections, biases;
  for (const Linear* projection : a.projections()) {
    projections.push_back(detach(projection->weight));
    if (projection->bias.defined()) biases.push_back(detach(projection->bias));
  }
  const auto count = static_cast<int64_t>(projections.size());
  const Tensor projected =
      buffer.view({shape.batch, count, shape.heads, shape.dim},
                  Shape{shape.batch, count, shape.heads, shape.dim}.contiguous_strides());
  return {.weights = weights,
          .projections = DecodingLinear(concat(projections, 0), biases.empty() ? Tensor{} : concat(biases, 0),
                                        shape.batch),
          .out = prepare(a.out_projection),
          .linear1 = prepare(weights.feedforward.linear1),
          .linear2 = prepare(weights.feedforward.linear2),
          .projected = projected.view({shape.batch, count * shape.heads * shape.dim}),
          .conv_history =
              a.conv() ? Tensor::zeros({shape.batch, a.conv()->weight.size(1) - 1, a.conv()->weight.size(0)},
                                       shape.dtype, shape.device)
                       : Tensor{},
          .heads = a.split_heads(unbind(projected, 1)),
          .state = a.inner_attention().make_state(shape),
          .can_round_result = false};
}

int64_t RecurrentEncoder::state_bytes() const {
  int64_t total = 0;
  for (const Layer& layer : layers_)
    total += layer.state->bytes() + (layer.conv_history.defined() ? layer.conv_history.bytes() : 0);
  return total;
}

void RecurrentEncoder::reset() {
  position_ = 0;
  for (const Layer& layer : layers_) {
    layer.state->reset();
    if (layer.conv_history.defined()) layer.conv_history.fill(0);
  }
}

// Executor of run_layer() that processes one token of every sequence and stores the results in buffers of the
// RecurrentEncoder. In post-norm layers, run_branch() omits the last linear layer of the branch.
// normalize_sum() computes this linear layer together with the norm.
struct RecurrentEncoder::TokenExecutor {
  const RecurrentEncoder& step;
  const Layer& layer;
  bool post_norm;

  LayerNormResult norm(ResidualBranch branch, const Tensor& x) const {
    const LayerNorm& norm = layer.weights.norm(branch);
    layer_norm_into(x, {}, norm.weight, norm.bias, step.normalized_, step.branch_operand_);
    return {step.normalized_, step.branch_operand_};
  }
  static Tensor dropout(ResidualBranch, const Tensor& x) { return x; }
  static Tensor sum(const Tensor& residual, const Tensor& branch_result) {
    add_into(residual, branch_result, residual);
    return residual;
  }
  // The two branches write to different buffers, because layer_norm_into() does not work in place.
  LayerNormResult normalize_sum(ResidualBranch branch, const Tensor& residual,
                                const Tensor& branch_result) const {
    const LayerNorm& norm = layer.weights.norm(branch);
    const Tensor& out = branch == ResidualBranch::attention ? step.normalized_ : step.input_;
    const DecodingLinear& last = branch == ResidualBranch::attention ? layer.out : layer.linear2;
    last.forward_residual_norm_into(branch_result, residual, norm.weight, norm.bias, step.branch_result_, out,
                                    step.branch_operand_);
    return {out, step.branch_operand_};
  }
  Tensor run_branch(ResidualBranch branch, const Tensor& input, const Tensor& operand) const {
    const Tensor& x = operand.defined() ? operand : input;
    if (branch == ResidualBranch::attention) {
      layer.weights.attention.inner_attention().observe_input(input, *layer.state);
      return run_attention(*this, x);
    }
    layer.linear1.forward_into(x, layer.weights.feedforward.activation(), step.hidden_, step.hidden_scratch_);
    if (post_norm) return step.hidden_;
    layer.linear2.forward_into(step.hidden_, Activation::none, step.branch_result_);
    return step.branch_result_;
  }

  ProjectedHeads project(const Tensor& x) const {
    layer.projections.forward_into(x, Activation::none, layer.projected);
    if (const ShortConv* const conv = layer.weights.attention.conv())
      short_conv_step(layer.projected, conv->weight, conv->activation(), layer.conv_history, layer.projected);
    return layer.heads;
  }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const bool rounded = step.attention_result_operand_.defined();
    const Tensor& out =
        rounded && layer.can_round_result ? step.attention_result_operand_ : step.attention_result_;
    layer.weights.attention.inner_attention().step(q, k, v, *layer.state, out.view(v.shape()));
    if (rounded && !layer.can_round_result) step.attention_result_operand_.copy_from(step.attention_result_);
    return rounded ? step.attention_result_operand_ : step.attention_result_;
  }
  Tensor rotate(const Tensor& x) const {
    if (layer.weights.attention.rotates()) rotate_token_in_place(x, {.first_position = step.position_});
    return x;
  }
  Tensor output(const Tensor& attended) const {
    if (post_norm) return attended;
    layer.out.forward_into(attended, Activation::none, step.branch_result_);
    return step.branch_result_;
  }
};

const Tensor& RecurrentEncoder::step() {
  const NoGradScope no_grad;
  const ResidualForm form = choose_residual_form(encoder_.options());
  HiddenStates states{input_};
  if (form == ResidualForm::reversible) {
    second_half_.copy_from(input_);
    states.x2 = second_half_;
  }
  if (form == ResidualForm::post_norm && branch_operand_.defined()) {
    branch_operand_.copy_from(input_);
    states.x1_operand = branch_operand_;
  }
  for (const Layer& layer : layers_)
    run_layer(form, TokenExecutor{*this, layer, form == ResidualForm::post_norm}, states);
  ++position_;
  if (form == ResidualForm::reversible) {
    first_half_view_.copy_from(states.x1);
    second_half_view_.copy_from(states.x2);
  }
  const LayerNorm& norm = encoder_.norm;
  layer_norm_into(states.x2.defined() ? concatenated_halves_ : states.x1, {}, norm.weight, norm.bias,
                  result_);
  return result_;
}

}  // namespace tapeformer
