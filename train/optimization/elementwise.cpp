// Optimizers that update each element by the equations of UpdateRule.
#include <cmath>

#include "core/options/option_table.h"
#include "ops/optimizer_step.h"
#include "train/optimization/optimizer_kind.h"

namespace tapeformer {
namespace {

class ElementwiseMethod : public UpdateMethod {
 public:
  using MakeRule = std::function<UpdateRule(double lr, double step)>;

  ElementwiseMethod(MakeRule make_rule, bool has_second_moment, double clip_value,
                    const NamedParameters& parameters)
      : make_rule_(std::move(make_rule)), clip_value_(clip_value) {
    for (const auto& [name, parameter] : parameters) {
      first_moments_.push_back(Tensor::zeros_like(parameter));
      second_moments_.push_back(has_second_moment ? Tensor::zeros_like(parameter) : Tensor{});
    }
  }

  UpdateRule prepare_step(double lr, int64_t step) override {
    return make_rule_(lr, static_cast<double>(step));
  }

  Tensor update(const std::vector<ParameterUpdate>& updates, const Tensor& rule,
                const Clipping& clipping) override {
    std::vector<ParameterTensors> tensors;
    for (const auto& [index, parameter, gradient, decays] : updates)
      tensors.push_back({parameter, gradient, first_moments_[index], second_moments_[index], decays});
    Clipping limits = clipping;
    if (clip_value_ > 0) limits.max_value = clip_value_;
    return apply_optimizer_step(tensors, rule, limits);
  }

  std::vector<std::pair<std::string, Tensor>> state(size_t index) const override {
    if (!second_moments_[index].defined()) return {{"first", first_moments_[index]}};
    return {{"first", first_moments_[index]}, {"second", second_moments_[index]}};
  }

 private:
  MakeRule make_rule_;
  double clip_value_;
  std::vector<Tensor> first_moments_, second_moments_;
};

struct AdamOptions {
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8, clip_value = 0;
};

struct SgdOptions {
  double momentum = 0.9, clip_value = 0;
};

template <class Options>
void add_clip_value(OptionTable<Options>& table) {
  table
      .add("clip_value", &Options::clip_value,
           "largest magnitude of an element of a gradient; 0: no clipping; excludes clip_norm")
      .require_at_least(0);
}

const OptionTable<AdamOptions>& adam_options() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<AdamOptions>;
    OptionSpec& betas =
        options->add("betas", &AdamOptions::betas, "decay rates of the first and second moments");
    betas.require_fraction_below_one().list_length = 2;
    options->add("eps", &AdamOptions::eps, "added to the root of the second moment").require_at_least(0);
    add_clip_value(*options);
    return options;
  }();
  return table;
}

const OptionTable<SgdOptions>& sgd_options() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<SgdOptions>;
    options->add("momentum", &SgdOptions::momentum, "momentum of gradients").require_fraction_below_one();
    add_clip_value(*options);
    return options;
  }();
  return table;
}

UpdateRule make_radam_rule(const AdamOptions& options, double weight_decay, double lr, double t) {
  const double beta1 = options.betas[0], beta2 = options.betas[1];
  UpdateRule rule{.momentum = beta1,
                  .gain = 1 - beta1,
                  .beta2 = beta2,
                  .shrink = 1 - lr * weight_decay,
                  .eps = options.eps};
  const double power = std::pow(beta2, t), correction1 = 1 - std::pow(beta1, t);
  const double rho_inf = 2 / (1 - beta2) - 1, rho = rho_inf - 2 * t * power / (1 - power);
  rule.adaptive = rho >= 5;
  rule.step_size = lr / correction1;
  if (rule.adaptive)
    rule.step_size *=
        std::sqrt((1 - power) * (rho - 4) / (rho_inf - 4) * (rho - 2) / rho * rho_inf / (rho_inf - 2));
  return rule;
}

UpdateRule make_adam_rule(const AdamOptions& options, double lr, double t) {
  const double beta1 = options.betas[0], beta2 = options.betas[1];
  UpdateRule rule{.momentum = beta1, .gain = 1 - beta1, .beta2 = beta2, .eps = options.eps, .adaptive = true};
  rule.step_size = lr / (1 - std::pow(beta1, t));
  rule.second_scale = 1 / std::sqrt(1 - std::pow(beta2, t));
  return rule;
}

using MakeAdamRule = UpdateRule (*)(const AdamOptions&, double weight_decay, double lr, double t);

OptimizerKind make_adaptive_kind(const char* name, const char* help, MakeAdamRule make_rule) {
  return {.name = name,
          .help = help,
          .options = adam_options().specs(),
          .make = [make_rule](const OptimizerConfig& config, const OptionValues& values,
                              const NamedParameters& parameters) -> std::unique_ptr<UpdateMethod> {
            const AdamOptions options = adam_options().read(values);
            const auto rule = [=, decay = config.weight_decay](double lr, double t) {
              return make_rule(options, decay, lr, t);
            };
            return std::make_unique<ElementwiseMethod>(rule, true, options.clip_value, parameters);
          }};
}

}  // namespace

OptimizerKind make_radam_kind() {
  return make_adaptive_kind("radam", "rectified Adam, with decoupled weight decay", make_radam_rule);
}

OptimizerKind make_adam_kind() {
  return make_adaptive_kind("adam", "Adam, with weight decay added to the gradient",
                            [](const AdamOptions& options, double decay, double lr, double t) {
                              UpdateRule rule = make_adam_rule(options, lr, t);
                              rule.l2 = decay;
                              return rule;
                            });
}

OptimizerKind make_adamw_kind() {
  return make_adaptive_kind("adamw", "Adam, with decoupled weight decay",
                            [](const AdamOptions& options, double decay, double lr, double t) {
                              UpdateRule rule = make_adam_rule(options, lr, t);
                              rule.shrink = 1 - lr * decay;
                              return rule;
                            });
}

OptimizerKind make_sgd_kind() {
  return {.name = "sgd",
          .help = "gradient descent with momentum, with weight decay added to the gradient",
          .options = sgd_options().specs(),
          .make = [](const OptimizerConfig& config, const OptionValues& values,
                     const NamedParameters& parameters) -> std::unique_ptr<UpdateMethod> {
            const SgdOptions options = sgd_options().read(values);
            const auto rule = [=, decay = config.weight_decay](double lr, double) {
              return UpdateRule{.momentum = options.momentum, .l2 = decay, .step_size = lr};
            };
            return std::make_unique<ElementwiseMethod>(rule, false, options.clip_value, parameters);
          }};
}

}  // namespace tapeformer
