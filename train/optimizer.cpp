#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ops/optimizer_step.h"

namespace tapeformer {
namespace {

UpdateRule make_radam_rule(const OptimizerConfig& config, double lr, double t) {
  const double beta1 = config.betas[0], beta2 = config.betas[1];
  UpdateRule rule{.momentum = beta1,
                  .gain = 1 - beta1,
                  .beta2 = beta2,
                  .shrink = 1 - lr * config.weight_decay,
                  .eps = config.eps};
  const double power = std::pow(beta2, t), correction1 = 1 - std::pow(beta1, t);
  const double rho_inf = 2 / (1 - beta2) - 1, rho = rho_inf - 2 * t * power / (1 - power);
  rule.adaptive = rho >= 5;
  rule.step_size = lr / correction1;
  if (rule.adaptive)
    rule.step_size *=
        std::sqrt((1 - power) * (rho - 4) / (rho_inf - 4) * (rho - 2) / rho * rho_inf / (rho_inf - 2));
  return rule;
}

// Returns the update rule of Adam or, if `decoupled` is true, of AdamW. Adam adds L2 weight decay to the
// gradient, and AdamW multiplies the weights by 1 - lr * weight_decay.
UpdateRule make_adam_rule(const OptimizerConfig& config, double lr, double t, bool decoupled) {
  const double beta1 = config.betas[0], beta2 = config.betas[1];
  UpdateRule rule{.momentum = beta1, .gain = 1 - beta1, .beta2 = beta2, .eps = config.eps, .adaptive = true};
  (decoupled ? rule.shrink : rule.l2) = decoupled ? 1 - lr * config.weight_decay : config.weight_decay;
  rule.step_size = lr / (1 - std::pow(beta1, t));
  rule.second_scale = 1 / std::sqrt(1 - std::pow(beta2, t));
  return rule;
}

UpdateRule make_step_rule(const OptimizerConfig& config, double lr, int64_t step) {
  const auto t = static_cast<double>(step);
  if (config.kind == "radam") return make_radam_rule(config, lr, t);
  if (config.kind == "adam" || config.kind == "adamw")
    return make_adam_rule(config, lr, t, config.kind == "adamw");
  if (config.kind == "sgd") return {.momentum = config.momentum, .l2 = config.weight_decay, .step_size = lr};
  if (config.kind == "adafactor") return {};
  throw ConfigError("unknown optimizer \"" + config.kind + "\"");
}

Clipping make_clipping(const OptimizerConfig& config, double gradient_scale) {
  Clipping clipping{.gradient_scale = gradient_scale,
                    .max_norm = config.clip_norm,
                    .per_tensor = config.clip == "per_tensor"};
  if (config.clip_value > 0) clipping.max_value = config.clip_value;
  return clipping;
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, NamedParameters parameters)
    : config_(config), parameters_(std::move(parameters)) {
  make_step_rule(config_, config_.lr, 1);  // throws for an unknown kind
  const bool is_adafactor = config_.kind == "adafactor", has_second = config_.kind != "sgd" && !is_adafactor;
  if (is_adafactor) {
    std::vector<Tensor> tensors;
    for (const auto& [name, parameter] : parameters_) tensors.push_back(detach(parameter));
    adafactor_ = std::make_unique<Adafactor>(config_, tensors);
  }
  std::vector<Tensor> weights;
  for (const auto& [name, parameter] : parameters_) {
    first_moments_.push_back(is_adafactor ? Tensor{} : Tensor::zeros_like(parameter));
    second_moments_.push_back(has_second ? Tensor::zeros_like(parameter) : Tensor{});
    if (config_.ema > 0) averages_.push_back(detach(parameter).clone());
    weights.push_back(parameter);
  }
  rounded_weights_ = RoundedWeights(weights);
}

const RoundedWeights& Optimizer::round_weights() const {
  rounded_weights_.update();
  return rounded_weights_;
}

void Optimizer::prepare_step(double lr) {
  UpdateRule rule = make_step_rule(config_, lr, ++step_count_);
  // A smaller decay in early steps reduces the influence of the initial weights on the moving average.
  const auto t = static_cast<double>(step_count_);
  rule.average_decay = std::min(config_.ema, (1 + t) / (10 + t));
  if (adafactor_) adafactor_->prepare_step(lr, step_count_);
  if (coefficients_.defined())
    overwrite_rule(coefficients_, rule);
  else
    coefficients_ = copy_rule_to_device(parameters_.empty() ? kCpu : parameters_[0].second.device(), rule);
}

Tensor Optimizer::update_parameters(double gradient_scale) {
  std::vector<ParameterTensors> slots;
  std::vector<size_t> indices;
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    const Tensor g = gradient(parameter);
    if (!g.defined()) continue;
    gradients.push_back(g.is_contiguous() ? g : g.clone());
    indices.push_back(i);
    slots.push_back({parameter, gradients.back(), first_moments_[i], second_moments_[i]});
  }
  const Clipping clipping = make_clipping(config_, gradient_scale);
  const Tensor norm = adafactor_ ? update_with_adafactor(indices, gradients, clipping)
                                 : apply_optimizer_step(slots, coefficients_, clipping);
  for (size_t i = 0; i < averages_.size(); ++i)
    update_moving_average(averages_[i], parameters_[i].second, coefficients_);
  for (const auto& [name, parameter] : parameters_) set_gradient(parameter, {});
  return norm;
}

Tensor Optimizer::update_with_adafactor(const std::vector<size_t>& indices,
                                        const std::vector<Tensor>& gradients, const Clipping& clipping) {
  const NoGradScope no_grad;
  const auto [scales, norm] = compute_gradient_scales(gradients, clipping);
  for (size_t i = 0; i < indices.size(); ++i)
    adafactor_->update_parameter(indices[i], parameters_[indices[i]].second, gradients[i],
                                 scales.view({}, {}, static_cast<int64_t>(i)));
  return norm;
}

Tensor Optimizer::step(double lr, double gradient_scale) {
  prepare_step(lr);
  return update_parameters(gradient_scale);
}

void Optimizer::swap_averaged_weights() {
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    const Tensor weights = detach(parameter).clone();
    parameter.copy_from(averages_[i]);
    averages_[i].copy_from(weights);
  }
}

void Optimizer::reset_averages() {
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_from(parameters_[i].second);
}

Optimizer::NamedParameters Optimizer::state() const {
  NamedParameters state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    if (first_moments_[i].defined()) state.emplace_back("first." + name, first_moments_[i]);
    if (adafactor_)
      for (const auto& [moment, tensor] : adafactor_->state(i))
        state.emplace_back(moment + "." + name, tensor);
    if (second_moments_[i].defined()) state.emplace_back("second." + name, second_moments_[i]);
    if (has_average()) state.emplace_back("average." + name, averages_[i]);
  }
  return state;
}

}  // namespace tapeformer
