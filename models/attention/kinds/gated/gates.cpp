#include "models/attention/kinds/gated/gates.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

Initializer make_log_uniform_initializer(double low, double high) {
  return [=](const Tensor& parameter, const RandomStream& stream) {
    for (int64_t i = 0; i < parameter.numel(); ++i)
      parameter.data<double>()[i] =
          std::log(high + (low - high) * stream.uniform(static_cast<uint64_t>(i)));  // low excluded
  };
}

// The inverse of softplus at time steps that are uniform in [0.001, 0.1] on a logarithmic scale (Mamba).
void initialize_time_steps(const Tensor& parameter, const RandomStream& stream) {
  for (int64_t i = 0; i < parameter.numel(); ++i) {
    const double step = 0.001 * std::pow(100.0, stream.uniform(static_cast<uint64_t>(i)));
    parameter.data<double>()[i] = step + std::log(-std::expm1(-step));
  }
}

}  // namespace

Projection::Projection(int64_t in, int64_t out, int64_t rank, bool has_bias)
    : first_(rank > 0 ? std::make_unique<Linear>(in, rank, LinearOptions{.has_bias = false}) : nullptr),
      last_(rank > 0 ? rank : in, out, {.has_bias = has_bias}) {
  if (first_) add_child("down", *first_);
  add_child(first_ ? "up" : "", last_);
}

Tensor Projection::forward(const Tensor& x, DType result_dtype) const {
  return last_.forward(first_ ? first_->forward(x) : x, Activation::none, {}, result_dtype);
}

DecodingProjection::DecodingProjection(const Projection& projection, const AttentionStateOptions& s,
                                       const Tensor& added, double factor) {
  const NoGradScope no_grad;
  const Linear& last = projection.last_;
  if (projection.first_) {
    first_ = DecodingLinear(detach(projection.first_->weight), {}, s.batch);
    hidden_ = Tensor::empty({s.batch, last.weight.size(1)}, s.dtype, s.device);
  }
  Tensor bias = last.bias;
  if (added.defined()) bias = bias.defined() ? add(bias, added) : added;
  const auto scale = [factor](const Tensor& x) { return factor == 1 || !x.defined() ? x : mul(x, factor); };
  last_ = DecodingLinear(scale(detach(last.weight)), scale(bias), s.batch);
}

void DecodingProjection::forward_into(const Tensor& x, const Tensor& out) const {
  if (hidden_.defined()) first_.forward_into(x, Activation::none, hidden_);
  last_.forward_into(hidden_.defined() ? hidden_ : x, Activation::none, out);
}

Gates::Gates(const GatedLinearOptions& o, const AttentionSetup& s)
    : options_(o), heads_(s.heads), dim_(s.dim) {
  const int64_t in = s.input_width(), width = s.heads * s.dim;
  if (is_per_channel()) {
    const int64_t rank = o.decay_rank == kRankOfHead ? s.dim : o.decay_rank;
    decay_ = std::make_unique<Projection>(in, width, rank, o.decay == DecayForm::gate);
  } else if (o.decay == DecayForm::head) {
    decay_ = std::make_unique<Projection>(in, s.heads, 0, false);
  } else if (o.decay != DecayForm::none) {
    fixed_ = make_fixed_decays(s);
    add_buffer("log_decay", fixed_);
  }
  if (decay_) add_child("decay", *decay_);
  if (decay_ && o.decay != DecayForm::gate) {
    // Gated DeltaNet draws from U(0, 16), Mamba-2 and Kimi Delta Attention from U(1, 16).
    const double low = o.decay == DecayForm::head && o.delta ? 0 : 1;
    add_parameter("log_rate", log_rate_, {s.heads, 1}, make_log_uniform_initializer(low, 16),
                  {.decays = false});
    add_parameter("time_step", time_step_, {is_per_channel() ? width : s.heads}, initialize_time_steps,
                  {.decays = false});
  }
  if (o.delta) {
    beta_ = std::make_unique<Projection>(in, s.heads, 0, false);
    add_child("beta", *beta_);
  }
}

void Gates::apply(const Tensor& x, DType dtype, GatedLinearAttentionOptions& target) const {
  const Shape shape{x.size(0), x.size(1), heads_};
  if (fixed_.defined()) target.log_decay = fixed_;
  if (decay_) {
    Tensor a = decay_->forward(x, dtype);
    if (time_step_.defined()) a = add(a, time_step_);
    const Tensor log_decay =
        compute_log_decay(reshape(a, {shape[0], shape[1], heads_, is_per_channel() ? dim_ : 1}));
    target.log_decay = is_per_channel() ? log_decay : reshape(log_decay, shape);
    if (options_.decay_scales_values && options_.decay == DecayForm::head) target.beta = softplus(a);
  }
  if (beta_) {
    target.beta = sigmoid(beta_->forward(x, dtype));
    if (options_.beta_range != 1) target.beta = mul(target.beta, options_.beta_range);
  }
}

bool Gates::is_per_channel() const {
  return options_.decay == DecayForm::channel || options_.decay == DecayForm::bounded ||
         options_.decay == DecayForm::gate;
}

Tensor Gates::make_fixed_decays(const AttentionSetup& s) const {
  const Tensor decays = Tensor::zeros({s.heads}, DType::float64);
  for (int64_t h = 0; h < s.heads; ++h) {
    const auto head = static_cast<double>(h), heads = static_cast<double>(s.heads);
    const double layer = s.layers > 1 ? static_cast<double>(s.layer) / static_cast<double>(s.layers - 1) : 0;
    decays.data<double>()[h] = options_.decay == DecayForm::retention
                                   ? std::log1p(-std::exp2(-5 - head))
                                   : -std::exp2(-8 * (head + 1) / heads) * (1 - layer);
  }
  return decays.to(DType::float32);
}

Tensor Gates::compute_rate() const {
  // Larger rates forget everything, too, but the product of an infinite rate and a softplus of 0 is NaN.
  constexpr double kMaxLogRate = 80;
  return exp(sub(log_rate_, relu(add(log_rate_, -kMaxLogRate))));
}

// a is (batch, length, heads, 1 or dim).
Tensor Gates::compute_log_decay(const Tensor& a) const {
  if (options_.decay == DecayForm::gate) return mul(softplus(neg(a)), -1 / options_.gate_normalizer);
  const Tensor rate = compute_rate();
  if (options_.decay == DecayForm::bounded) return mul(sigmoid(mul(a, rate)), options_.decay_bound);
  return mul(softplus(a), neg(rate));
}

DecodingGates::DecodingGates(const Gates& gates, const AttentionStateOptions& s)
    : form_(gates.options_.decay) {
  const NoGradScope no_grad;
  const GatedLinearOptions& o = gates.options_;
  const Shape per_head{s.batch, s.heads}, per_channel{s.batch, s.heads, s.dim};
  const Shape shape = gates.is_per_channel() ? per_channel : per_head;
  if (gates.fixed_.defined()) values_.log_decay = gates.fixed_.to(s.dtype);
  if (gates.decay_) {
    // softplus(-a) is the negative logarithm of sigmoid(a).
    const bool is_gate = o.decay == DecayForm::gate;
    decay_ = DecodingProjection(*gates.decay_, s, gates.time_step_, is_gate ? -1 : 1);
    values_.log_decay = Tensor::empty(shape, s.dtype, s.device);
    flat_decay_ = values_.log_decay.view({s.batch, values_.log_decay.numel() / s.batch});
    const auto expand = [&](const Tensor& x) {
      return contiguous(add(Tensor::zeros(shape, s.dtype, s.device), x));
    };
    const auto expand_rate = [&](const Tensor& rate) {
      return expand(gates.is_per_channel() ? rate : reshape(rate, {s.heads}));
    };
    if (is_gate)
      factor_ = Tensor::full(shape, -1 / o.gate_normalizer, s.dtype, s.device);
    else if (o.decay == DecayForm::bounded)
      factor_ = Tensor::full(shape, o.decay_bound, s.dtype, s.device);
    else
      factor_ = expand_rate(neg(gates.compute_rate()));
    if (o.decay == DecayForm::bounded) rate_ = expand_rate(gates.compute_rate());
    if (o.decay_scales_values && o.decay == DecayForm::head)
      values_.beta = Tensor::empty(per_head, s.dtype, s.device);
  }
  if (gates.beta_) {
    beta_ = DecodingProjection(*gates.beta_, s);
    values_.beta = Tensor::empty(per_head, s.dtype, s.device);
    beta_range_ = o.beta_range == 1 ? Tensor{} : Tensor::full(per_head, o.beta_range, s.dtype, s.device);
    has_beta_ = true;
  }
}

void DecodingGates::observe(const Tensor& x) {
  if (flat_decay_.defined()) {
    const Tensor& decay = values_.log_decay;
    decay_.forward_into(x, flat_decay_);
    if (rate_.defined()) mul_into(decay, rate_, decay);
    if (form_ == DecayForm::bounded)
      sigmoid_into(decay, decay);
    else
      softplus_into(decay, decay);
    if (values_.beta.defined() && !has_beta_) values_.beta.copy_from(decay);
    mul_into(decay, factor_, decay);
  }
  if (!has_beta_) return;
  beta_.forward_into(x, values_.beta);
  sigmoid_into(values_.beta, values_.beta);
  if (beta_range_.defined()) mul_into(values_.beta, beta_range_, values_.beta);
}

}  // namespace tapeformer
