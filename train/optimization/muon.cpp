// The optimizer Muon (Jordan et al. 2024), with the step size of Liu et al. 2025 (arXiv 2502.16982). A step
// moves a matrix by its momentum with all singular values near 1. AdamW updates the other parameters.
#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/tape.h"
#include "core/options/name_patterns.h"
#include "core/options/option_table.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "train/optimization/optimizer_kind.h"

namespace tapeformer {
namespace {

// Odd polynomial of Jordan et al. Five iterations take values between 0.01 and 1 to values between 0.68
// and 1.13.
constexpr std::array kPolynomial = {3.4445, -4.7750, 2.0315};
constexpr double kNormEpsilon = 1e-7;  // minimum of a norm by which a matrix is divided
constexpr double kUpdateRms = 0.2;     // root mean square of an update of AdamW, as in Liu et al.
enum MuonCoefficient : int64_t { kMuonRate, kMuonShrink, kMuonCoefficients };

struct MuonOptions {
  double momentum = 0.95;
  int64_t iterations = 5;
  std::vector<std::string> adamw = {"*embedding*", "*predictor*", "*conv*", "*gates*"};
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
};

const OptionTable<MuonOptions>& muon_options() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<MuonOptions>;
    options->add("momentum", &MuonOptions::momentum, "momentum of gradients").require_fraction_below_one();
    options->add("iterations", &MuonOptions::iterations, "iterations that orthogonalize an update")
        .require_range(1, 100);
    options->add("adamw", &MuonOptions::adamw, "patterns of the names of matrices that AdamW updates");
    options->add("betas", &MuonOptions::betas, "decay rates of the first and second moments")
        .require_fraction_below_one()
        .list_length = 2;
    options->add("eps", &MuonOptions::eps, "added to the root of the second moment").require_at_least(0);
    return options;
  }();
  return table;
}

// Returns `x` (m, n) with p(…p(s / |x|)) instead of each singular value s, where p(s) = a s + b s³ + c s⁵ is
// applied `iterations` times (Newton-Schulz) and |x| is the Frobenius norm. Products have the precision of
// the device.
Tensor orthogonalize(const Tensor& x, int64_t iterations) {
  const bool tall = x.size(0) > x.size(1);
  const Tensor norm = sqrt(sum(square(x)));
  Tensor y = div(tall ? transpose(x, 0, 1) : x, add(relu(add(norm, -kNormEpsilon)), kNormEpsilon));
  // a bᵀ
  const auto multiply = [](const Tensor& a, const Tensor& b) {
    return linear(convert_to_operand_dtype(a), contiguous(b), {}, Activation::none, {}, a.dtype());
  };
  const auto [a, b, c] = kPolynomial;
  for (int64_t i = 0; i < iterations; ++i) {
    const Tensor gram = multiply(y, y);
    const Tensor factor = add(mul(gram, b), mul(multiply(gram, gram), c));  // symmetric, as `gram`
    y = add(mul(y, a), multiply(factor, transpose(y, 0, 1)));
  }
  return tall ? transpose(y, 0, 1) : y;
}

// A step updates a matrix p (m, n) with the scaled gradient g as follows:
//   momentum = μ momentum + (1 - μ) g
//   u = μ momentum + (1 - μ) g                      (Nesterov)
//   p = (1 - lr weight_decay) p - 0.2 √max(m, n) lr orthogonalize(u)
class Muon : public UpdateMethod {
 public:
  Muon(const MuonOptions& options, const OptimizerConfig& config, const NamedParameters& parameters);

  UpdateRule prepare_step(double lr, int64_t step) override;
  Tensor update(const std::vector<ParameterUpdate>& updates, const Tensor& rule,
                const Clipping& clipping) override;
  std::vector<std::pair<std::string, Tensor>> state(size_t index) const override;

 private:
  void update_matrix(const Tensor& momentum, const ParameterUpdate& one) const;

  MuonOptions options_;
  double weight_decay_;
  std::vector<Tensor> momenta_;        // per parameter; undefined for parameters of AdamW
  std::vector<size_t> adamw_indices_;  // per parameter: its index for `adamw_`
  std::unique_ptr<UpdateMethod> adamw_;
  Tensor coefficients_;  // (2,): lr and 1 - lr weight_decay of the current step
};

Muon::Muon(const MuonOptions& options, const OptimizerConfig& config, const NamedParameters& parameters)
    : options_(options), weight_decay_(config.weight_decay) {
  const NamePatterns patterns("optimizer.adamw", options.adamw);
  NamedParameters others;
  for (const auto& [name, parameter] : parameters) {
    const bool is_matrix = parameter.rank() == 2 && !patterns.matches(name);
    momenta_.push_back(is_matrix ? Tensor::zeros_like(parameter) : Tensor{});
    adamw_indices_.push_back(others.size());
    if (!is_matrix) others.emplace_back(name, parameter);
  }
  const OptimizerKind& adamw = find_optimizer_kind("adamw");
  OptionValues values;
  values.set("betas", options.betas);
  values.set("eps", options.eps);
  adamw_ = adamw.make(config, complete_options(adamw.options, values), others);
  const Tensor like = parameters.empty() ? Tensor::zeros({1}) : parameters[0].second;
  coefficients_ = Tensor::zeros({kMuonCoefficients}, like.dtype(), like.device());
}

UpdateRule Muon::prepare_step(double lr, int64_t step) {
  coefficients_.copy_from(Tensor::from_vector<double>({lr, 1 - lr * weight_decay_}, {kMuonCoefficients}));
  return adamw_->prepare_step(lr, step);
}

Tensor Muon::update(const std::vector<ParameterUpdate>& updates, const Tensor& rule,
                    const Clipping& clipping) {
  const NoGradScope no_grad;
  std::vector<ParameterUpdate> others;
  const Tensor norm = update_with_scaled_gradients(updates, clipping, [&](const ParameterUpdate& one) {
    if (const Tensor& momentum = momenta_[one.index]; momentum.defined())
      update_matrix(momentum, one);
    else
      others.push_back({adamw_indices_[one.index], one.parameter, one.gradient, one.decays});
  });
  if (!others.empty()) adamw_->update(others, rule, {});
  return norm;
}

void Muon::update_matrix(const Tensor& momentum, const ParameterUpdate& one) const {
  const double mu = options_.momentum;
  const Tensor p = detach(one.parameter), g = mul(one.gradient, 1 - mu);
  if (p.numel() == 0) return;
  momentum.copy_from(add(mul(momentum, mu), g));
  const Tensor u = orthogonalize(add(mul(momentum, mu), g), options_.iterations);
  const double size = kUpdateRms * std::sqrt(static_cast<double>(std::max(p.size(0), p.size(1))));
  const auto coefficient = [&](int64_t index) { return coefficients_.view({}, {}, index); };
  const Tensor decayed = one.decays ? mul(p, coefficient(kMuonShrink)) : p;
  one.parameter.copy_from(sub(decayed, mul(u, mul(coefficient(kMuonRate), size))));
}

std::vector<std::pair<std::string, Tensor>> Muon::state(size_t index) const {
  if (momenta_[index].defined()) return {{"first", momenta_[index]}};
  return adamw_->state(adamw_indices_[index]);
}

}  // namespace

OptimizerKind make_muon_kind() {
  return {.name = "muon",
          .help = "momentum with orthogonalized matrices, and AdamW for other parameters",
          .options = muon_options().specs(),
          .make = [](const OptimizerConfig& config, const OptionValues& options,
                     const NamedParameters& parameters) -> std::unique_ptr<UpdateMethod> {
            return std::make_unique<Muon>(muon_options().read(options), config, parameters);
          }};
}

}  // namespace tapeformer
