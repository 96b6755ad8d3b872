#include "models/encoder/encoder_step.h"

#include <algorithm>

#include "core/base/interruption.h"
#include "ops/elementwise.h"
#include "ops/gated_activation.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/view.h"

namespace tapeformer {

RecurrentEncoder::RecurrentEncoder(const Encoder& encoder, int64_t batch, int64_t capacity,
                                   WeightFormat format)
    : encoder_(encoder), batch_(batch), capacity_(capacity) {
  check(batch > 0, "RecurrentEncoder", "batch ", batch, " must be positive");
  if (const std::string text = describe_unsupported(encoder.options().attention, "recurrent form",
                                                    &AttentionCapabilities::recurrent);
      !text.empty())
    throw std::invalid_argument(text);
  for (const auto& layer : encoder.layers)
    layers_.push_back(make_layer(*layer, static_cast<int64_t>(layers_.size()), batch, format));
  allocate();
}

RecurrentEncoder::RecurrentEncoder(const RecurrentEncoder& other, int64_t batch, int64_t capacity)
    : encoder_(other.encoder_), batch_(batch), capacity_(capacity) {
  for (const Layer& layer : other.layers_)
    layers_.push_back({.weights = layer.weights,
                       .projections = layer.projections,
                       .out = layer.out,
                       .hidden = layer.hidden,
                       .linear2 = layer.linear2,
                       .norm1 = layer.norm1,
                       .norm2 = layer.norm2,
                       .query_norm = layer.query_norm,
                       .key_norm = layer.key_norm,
                       .cross = {layer.cross.query, layer.cross.out, layer.cross.norm, nullptr, {}, {}},
                       .can_round_result = layer.can_round_result});
  allocate();
}

void RecurrentEncoder::allocate() {
  const EncoderOptions& o = encoder_.options();
  const Tensor& like = encoder_.norm.weight;
  const auto buffer = [&](const Shape& s) { return Tensor::empty(s, like.dtype(), like.device()); };
  // On the CPU, DecodingLinear rounds its inputs, so bfloat16 copies of the inputs are not needed.
  const DType operand = like.device().is_cpu() ? like.dtype() : get_operand_dtype(like);
  final_norm_ = encoder_.norm.make_decoding_norm();
  const SharedBuffers shared = make_shared_buffers(operand);
  for (Layer& layer : layers_) bind(layer, shared);
  for (Tensor* t : {&input_, &normalized_, &branch_result_}) *t = buffer({batch_, o.width()});
  if (o.parallel_residual) second_half_ = buffer({batch_, o.width()});
  result_ = buffer({batch_, o.output_width()});
  if (o.reversible) {
    second_half_ = buffer({batch_, o.width()});
    const int64_t both = o.average_halves ? 0 : 2 * o.width();
    concatenated_halves_ = buffer({batch_, both});
    if (both > 0) {
      first_half_view_ = concatenated_halves_.view({batch_, o.width()}, {both, 1});
      second_half_view_ = concatenated_halves_.view({batch_, o.width()}, {both, 1}, o.width());
    }
  }
  if (operand != like.dtype()) branch_operand_ = Tensor::empty({batch_, o.width()}, operand, like.device());
  hidden_ = Tensor::empty({batch_, o.feedforward}, operand, like.device());
  hidden_scratch_ =
      Tensor::empty({batch_, (o.gated_feedforward ? 2 : 1) * o.feedforward}, operand, like.device());
}

RecurrentEncoder::SharedBuffers RecurrentEncoder::make_shared_buffers(DType operand) const {
  const Tensor& like = encoder_.norm.weight;
  int64_t projected = encoder_.options().attention_width(), attended = projected, query = 0, key = 0,
          value = 0;
  const auto raise = [](int64_t& largest, int64_t width) { largest = std::max(largest, width); };
  for (const Layer& layer : layers_) {
    const MultiHeadAttention& a = layer.weights.attention;
    const HeadSizes& sizes = a.sizes();
    int64_t width = 0;
    for (const Linear* projection : a.projections()) width += projection->weight.size(0);
    raise(projected, width);
    raise(attended, sizes.result_width());
    if (a.count_query_copies() > 1) raise(query, sizes.result_heads() * sizes.dim);
    if (a.count_key_copies() > 1) raise(key, sizes.result_heads() * sizes.dim);
    if (a.count_value_copies() > 1) raise(value, sizes.result_width());
  }
  const auto buffer = [&](int64_t width, DType dtype) {
    return Tensor::empty({batch_ * width}, dtype, like.device());
  };
  const DType dtype = like.dtype();
  return {buffer(projected, dtype),
          buffer(attended, dtype),
          operand == dtype ? Tensor{} : buffer(attended, operand),
          buffer(query, dtype),
          buffer(key, dtype),
          buffer(value, dtype)};
}

RecurrentEncoder::Layer RecurrentEncoder::make_layer(const EncoderLayer& weights, int64_t index,
                                                     int64_t batch, WeightFormat format) const {
  const auto prepare = [&](const Linear& linear) {
    return DecodingLinear(linear.compute_merged_weight(), linear.bias, batch, format);
  };
  const auto prepare_joined = [&](const std::vector<const Linear*>& layers) {
    const NoGradScope no_grad;
    const auto [weight, bias] = join_merged_layers(layers);
    return DecodingLinear(weight, bias, batch, format);
  };
  const MultiHeadAttention& a = weights.attention;
  const AttentionLayerChoice& choice = find_layer_choice(encoder_.options().attention, index);
  Layer layer{.weights = weights,
              .projections = prepare_joined({a.projections().begin(), a.projections().end()}),
              .out = prepare(a.out_projection),
              .norm1 = weights.norm1.make_decoding_norm(),
              .can_round_result = find_attention_kind(choice.kind).capabilities.can_round_step_results};
  if (weights.has_feedforward()) {
    layer.hidden = prepare_joined(weights.feedforward.list_input_layers());
    layer.linear2 = prepare(weights.feedforward.linear2);
    layer.norm2 = weights.norm2.make_decoding_norm();
  }
  if (a.query_norm) layer.query_norm = a.query_norm->make_decoding_norm();
  if (a.key_norm) layer.key_norm = a.key_norm->make_decoding_norm();
  if (const MultiHeadAttention* const cross = weights.cross_attention.get()) {
    layer.cross.norm = weights.cross_norm->make_decoding_norm();
    layer.cross.query = prepare(cross->query_projection);
    layer.cross.out = prepare(cross->out_projection);
  }
  return layer;
}

void RecurrentEncoder::bind(Layer& layer, const SharedBuffers& buffers) const {
  const MultiHeadAttention& a = layer.weights.attention;
  const HeadSizes& sizes = a.sizes();
  const Tensor& like = encoder_.norm.weight;
  const auto rows = [&](const Tensor& buffer, int64_t width) {
    return buffer.view({batch_, width}, {width, 1});
  };
  const auto heads = [&](const Tensor& buffer, int64_t dim) {
    return buffer.view({batch_, sizes.result_heads(), dim}, {sizes.result_heads() * dim, dim, 1});
  };
  int64_t width = 0;
  for (const Linear* projection : a.projections()) width += projection->weight.size(0);
  layer.projected = rows(buffers.projected, width);
  layer.heads = a.split_heads(layer.projected, 0, a.projections().size());
  layer.attended = rows(buffers.attended, sizes.result_width());
  if (buffers.attended_operand.defined())
    layer.attended_operand = rows(buffers.attended_operand, sizes.result_width());
  if (a.count_query_copies() > 1) layer.repeated.query = heads(buffers.query, sizes.dim);
  if (a.count_key_copies() > 1) layer.repeated.key = heads(buffers.key, sizes.dim);
  if (a.count_value_copies() > 1) layer.repeated.value = heads(buffers.value, sizes.value_dim);
  if (const ShortConv* const conv = a.conv()) bind_conv(layer, *conv);
  AttentionStateOptions state{batch_,    sizes.result_heads(), sizes.dim,    sizes.value_dim,
                              capacity_, like.dtype(),         like.device()};
  state.name = layer.weights.name();
  state.operand_dtype = get_operand_dtype(like);
  state.key_heads = a.count_key_copies() > 1 ? sizes.result_heads() : sizes.key_heads;
  layer.state = a.inner_attention().make_state(state);
  if (!layer.weights.cross_attention) return;
  layer.cross.projected = rows(buffers.projected, encoder_.options().attention_width());
  layer.cross.attended = rows(buffers.attended, encoder_.options().attention_width());
}

void RecurrentEncoder::bind_conv(Layer& layer, const ShortConv& conv) const {
  const NoGradScope no_grad;
  const int64_t channels = conv.weight.size(0);
  layer.conv_history =
      Tensor::zeros({batch_, conv.weight.size(1) - 1, channels}, conv.weight.dtype(), conv.weight.device());
  if (!conv.bias.defined()) return;
  layer.conv_scratch = Tensor::zeros({batch_, channels}, conv.weight.dtype(), conv.weight.device());
  layer.conv_bias = contiguous(add(layer.conv_scratch, detach(conv.bias)));
}

void RecurrentEncoder::read_source(const EncodedSource& source) {
  const NoGradScope no_grad;
  check(source.states.size(0) > 0 && batch_ % source.states.size(0) == 0, "RecurrentEncoder", "a batch of ",
        batch_, " rows is no multiple of ", source.states.size(0), " sources");
  for (Layer& layer : layers_) {
    const MultiHeadAttention& cross = *layer.weights.cross_attention;
    const ProjectedHeads heads = cross.project_source(source.states);
    layer.cross.source = cross.inner_attention().read_source(heads.key, heads.value, source.lengths);
  }
  source_count_ = source.states.size(0);
}

void RecurrentEncoder::copy_rows(std::span<const RowCopy> rows) {
  for (const Layer& layer : layers_) {
    layer.state->copy_rows(*layer.state, rows);
    if (layer.conv_history.defined()) tapeformer::copy_rows(layer.conv_history, layer.conv_history, rows);
  }
}

std::unique_ptr<RecurrentEncoder> RecurrentEncoder::select_sources(std::span<const int64_t> sources,
                                                                   int64_t capacity) const {
  const NoGradScope no_grad;
  const int64_t group = batch_ / source_count_;
  std::vector<RowCopy> rows;
  for (const int64_t source : sources)
    for (int64_t i = 0; i < group; ++i)
      rows.push_back({source * group + i, static_cast<int64_t>(rows.size())});
  const auto count = static_cast<int64_t>(sources.size());
  auto result = std::make_unique<RecurrentEncoder>(*this, count * group, capacity);
  result->position_ = position_;
  result->source_count_ = count;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& from = layers_[i];
    Layer& to = result->layers_[i];
    to.state->copy_rows(*from.state, rows);
    if (from.conv_history.defined()) tapeformer::copy_rows(from.conv_history, to.conv_history, rows);
    to.cross.source = from.cross.source->select(sources);
  }
  return result;
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

  const DecodingNorm& norm_of(ResidualBranch branch) const {
    if (branch == ResidualBranch::cross_attention) return layer.cross.norm;
    return branch == ResidualBranch::attention ? layer.norm1 : layer.norm2;
  }
  LayerNormResult norm(ResidualBranch branch, const Tensor& x) const {
    norm_into(x, {}, norm_of(branch), step.normalized_, step.branch_operand_);
    return {step.normalized_, step.branch_operand_};
  }
  static Tensor dropout(ResidualBranch, const Tensor& x) { return x; }
  static Tensor sum(const Tensor& residual, const Tensor& branch_result) {
    add_into(residual, branch_result, residual);
    return residual;
  }
  // Keeps x, the input of the layer, for the later branches.
  Tensor sum_beside(const Tensor& x, const Tensor& total, const Tensor& branch_result) const {
    const Tensor& other = x.id() == step.input_.id() ? step.second_half_ : step.input_;
    const Tensor& out = total.id() == x.id() ? other : total;
    add_into(total, branch_result, out);
    return out;
  }
  // The branches alternate between two buffers, because norm_into() does not work in place.
  LayerNormResult normalize_sum(ResidualBranch branch, const Tensor& residual,
                                const Tensor& branch_result) const {
    const Tensor& out = residual.id() == step.input_.id() ? step.normalized_ : step.input_;
    const DecodingLinear& last = branch == ResidualBranch::attention         ? layer.out
                                 : branch == ResidualBranch::cross_attention ? layer.cross.out
                                                                             : layer.linear2;
    last.forward_residual_norm_into(branch_result, residual, norm_of(branch), step.branch_result_, out,
                                    step.branch_operand_);
    return {out, step.branch_operand_};
  }
  Tensor run_branch(ResidualBranch branch, const Tensor& input, const Tensor& operand) const {
    const Tensor& x = operand.defined() ? operand : input;
    if (branch == ResidualBranch::attention) {
      layer.weights.attention.inner_attention().observe_input(input, *layer.state);
      return run_attention(*this, x);
    }
    if (branch == ResidualBranch::cross_attention) return attend_source(x);
    const FeedForwardOptions& block = layer.weights.feedforward.options();
    if (block.gated) {
      layer.hidden.forward_into(x, Activation::none, step.hidden_scratch_);
      gated_activation_into(step.hidden_scratch_, block.activation, step.hidden_);
    } else {
      layer.hidden.forward_into(x, block.activation, step.hidden_, step.hidden_scratch_);
    }
    if (post_norm) return step.hidden_;
    layer.linear2.forward_into(step.hidden_, Activation::none, step.branch_result_);
    return step.branch_result_;
  }

  Tensor attend_source(const Tensor& x) const {
    const EncoderOptions& o = step.encoder_.options();
    const Shape heads{step.source_count_, step.batch_ / step.source_count_, o.heads, o.head_dim};
    layer.cross.query.forward_into(x, Activation::none, layer.cross.projected);
    layer.cross.source->attend(layer.cross.projected.view(heads), layer.cross.attended.view(heads));
    if (post_norm) return layer.cross.attended;
    layer.cross.out.forward_into(layer.cross.attended, Activation::none, step.branch_result_);
    return step.branch_result_;
  }

  void convolve(const ShortConv& conv) const {
    const Tensor& x = layer.projected;
    short_conv_step(x, conv.weight, conv.op_activation(), layer.conv_history, x);
    if (!layer.conv_bias.defined()) return;
    add_into(x, layer.conv_bias, x);
    if (conv.activation() == GateActivation::none) return;
    sigmoid_into(x, layer.conv_scratch);
    conv.activation() == GateActivation::silu ? mul_into(x, layer.conv_scratch, x)
                                              : x.copy_from(layer.conv_scratch);
  }
  ProjectedHeads project(const Tensor& x) const {
    layer.projections.forward_into(x, Activation::none, layer.projected);
    if (const ShortConv* const conv = layer.weights.attention.conv()) convolve(*conv);
    return layer.heads;
  }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const bool rounded = layer.attended_operand.defined();
    const Tensor& out = rounded && layer.can_round_result ? layer.attended_operand : layer.attended;
    const MultiHeadAttention& a = layer.weights.attention;
    a.inner_attention().step(repeat_heads(q, layer.repeated.query), repeat_heads(k, layer.repeated.key),
                             repeat_heads(v, layer.repeated.value), *layer.state,
                             out.view({v.size(0), a.sizes().result_heads(), v.size(2)}));
    if (rounded && !layer.can_round_result) layer.attended_operand.copy_from(layer.attended);
    return rounded ? layer.attended_operand : layer.attended;
  }
  // Writes x (batch, n, dim) to `out` (batch, heads, dim) with each head repeated, and returns `out`. If
  // `out` is undefined, returns x.
  static Tensor repeat_heads(const Tensor& x, const Tensor& out) {
    if (!out.defined()) return x;
    const int64_t dim = x.size(2), count = out.size(1) / x.size(1), row = out.size(1) * dim;
    for (int64_t i = 0; i < count; ++i) out.view(x.shape(), {row, count * dim, 1}, i * dim).copy_from(x);
    return out;
  }
  static Tensor normalize(const Tensor& x, const DecodingNorm& norm) {
    if (norm.weight.defined()) rms_norm_into(x, norm.weight, {.eps = norm.eps}, x);
    return x;
  }
  Tensor normalize_queries(const Tensor& x) const { return normalize(x, layer.query_norm); }
  Tensor normalize_keys(const Tensor& x) const { return normalize(x, layer.key_norm); }
  Tensor rotate(const Tensor& x) const {
    if (!layer.weights.attention.rotates()) return x;
    RotaryOptions options = layer.weights.attention.rotary_options();
    options.first_position = step.position_;
    rotate_token_in_place(x, options);
    return x;
  }
  Tensor output(const Tensor& attended) const {
    if (post_norm) return attended;
    layer.out.forward_into(attended, Activation::none, step.branch_result_);
    return step.branch_result_;
  }
};

Tensor RecurrentEncoder::join_halves(const HiddenStates& states) const {
  if (!states.x2.defined()) return states.x1;
  if (encoder_.options().average_halves) {
    normalized_.fill(0);
    for (const Tensor& half : {states.x1, states.x2}) normalized_.add_scaled(half, 0.5);
    return normalized_;
  }
  first_half_view_.copy_from(states.x1);
  second_half_view_.copy_from(states.x2);
  return concatenated_halves_;
}

Tensor RecurrentEncoder::read(const Tensor& x) {
  const NoGradScope no_grad;
  LayerStates states;
  for (const Layer& layer : layers_)
    states.emplace(layer.weights.name(), LayerState{*layer.state, layer.conv_history, position_});
  const Tensor result =
      encoder_.forward(x, {.causal = true, .key_lengths = {}}, {.is_prefix = true, .states = &states});
  position_ += x.size(1);
  return result;
}

const Tensor& RecurrentEncoder::step() {
  throw_if_interrupted();
  const NoGradScope no_grad;
  const ResidualForm form = choose_residual_form(encoder_.options());
  HiddenStates states{input_};
  if (form == ResidualForm::reversible) {
    second_half_.copy_from(input_);
    states.x2 = second_half_;
    if (!encoder_.options().doubled_input) input_.fill(0);
  }
  if (form == ResidualForm::post_norm && branch_operand_.defined()) {
    branch_operand_.copy_from(input_);
    states.x1_operand = branch_operand_;
  }
  for (const Layer& layer : layers_)
    run_layer(form, layer.weights.branches(), TokenExecutor{*this, layer, form == ResidualForm::post_norm},
              states);
  ++position_;
  norm_into(join_halves(states), {}, final_norm_, result_);
  return result_;
}

}  // namespace tapeformer
