#include "train/optimization/optimizer.h"

#include <algorithm>

#include "ops/optimizer_step.h"

namespace tapeformer {
namespace {

Clipping make_clipping(const OptimizerConfig& config, double gradient_scale) {
  return {.gradient_scale = gradient_scale,
          .max_norm = config.clip_norm,
          .per_tensor = config.clip == "per_tensor"};
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, NamedParameters parameters,
                     const NamedParameters& undecayed, const NamedParameters& frozen)
    : config_(config), parameters_(std::move(parameters)) {
  std::vector<Tensor> weights;
  NamedParameters detached;
  for (const auto& [name, parameter] : parameters_) {
    if (config_.ema > 0) averages_.push_back(detach(parameter).clone());
    const void* const id = parameter.id();
    decays_.push_back(std::none_of(undecayed.begin(), undecayed.end(),
                                   [id](const auto& other) { return other.second.id() == id; }));
    weights.push_back(parameter);
    detached.emplace_back(name, detach(parameter));
  }
  const OptimizerKind& kind = find_optimizer_kind(config_.kind);
  method_ = kind.make(config_, complete_options(kind.options, config_.options), detached);
  for (const auto& [name, weight] : frozen) weights.push_back(weight);
  rounded_weights_ = RoundedWeights(weights);
}

const RoundedWeights& Optimizer::round_weights() const {
  rounded_weights_.update();
  return rounded_weights_;
}

void Optimizer::prepare_step(double lr) {
  UpdateRule rule = method_->prepare_step(lr, ++step_count_);
  // A smaller decay in early steps reduces the influence of the initial weights on the moving average.
  const auto t = static_cast<double>(step_count_);
  rule.average_decay = std::min(config_.ema, (1 + t) / (10 + t));
  if (coefficients_.defined())
    overwrite_rule(coefficients_, rule);
  else
    coefficients_ = copy_rule_to_device(parameters_.empty() ? kCpu : parameters_[0].second.device(), rule);
}

Tensor Optimizer::update_parameters(double gradient_scale) {
  std::vector<ParameterUpdate> updates;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    const Tensor g = gradient(parameter);
    if (g.defined()) updates.push_back({i, parameter, g.is_contiguous() ? g : g.clone(), decays_[i]});
  }
  const Tensor norm = method_->update(updates, coefficients_, make_clipping(config_, gradient_scale));
  for (size_t i = 0; i < averages_.size(); ++i)
    update_moving_average(averages_[i], parameters_[i].second, coefficients_);
  for (const auto& [name, parameter] : parameters_) set_gradient(parameter, {});
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

NamedParameters Optimizer::state() const {
  NamedParameters state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    for (const auto& [prefix, tensor] : method_->state(i)) state.emplace_back(prefix + "." + name, tensor);
    if (has_average()) state.emplace_back("average." + name, averages_[i]);
  }
  return state;
}

}  // namespace tapeformer
