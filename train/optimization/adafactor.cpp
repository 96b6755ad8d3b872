// The optimizer Adafactor (Shazeer and Stern 2018). For a matrix, the optimizer stores only the means of the
// second moments over rows and over columns. The size of a step is proportional to the root mean square of
// the parameter.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/options/option_table.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "train/optimization/optimizer_kind.h"

namespace tapeformer {
namespace {

constexpr double kMinRootMeanSquare = 1e-3;  // lower bound of rms(parameter) in the update
constexpr double kTraxEpsilon = 1e-30;       // added to squared gradients if the form is "trax"
enum Coefficient : int64_t { kMix, kRate, kShrink, kCoefficients };

Tensor clamp_to_minimum(const Tensor& x, double low) {
  return add(relu(add(x, -low)), low);
}

Tensor compute_root_mean_square(const Tensor& x) {
  return sqrt(mean(square(x)));
}

double get_epsilon(DType dtype) {
  return dtype == DType::float64 ? std::numeric_limits<double>::epsilon()
                                 : static_cast<double>(std::numeric_limits<float>::epsilon());
}

struct AdafactorOptions {
  std::string form = "pytorch";
  double decay_rate = 0.8, update_clip = 1;
};

const OptionTable<AdafactorOptions>& adafactor_options() {
  static const auto& table = *[] {
    auto* const options = new OptionTable<AdafactorOptions>;
    options
        ->add("form", &AdafactorOptions::form,
              "pytorch: rate min(lr, 1 / sqrt(step)), decay of weights by lr weight_decay; trax: rate lr, "
              "decay "
              "of weights by weight_decay")
        .require_one_of({"pytorch", "trax"});
    options
        ->add("decay_rate", &AdafactorOptions::decay_rate,
              "exponent in the decay of the second moments, 1 - step^-decay_rate")
        .require_range(0, 1);
    options
        ->add("update_clip", &AdafactorOptions::update_clip,
              "largest root mean square of an update before it is multiplied by the rate")
        .require_range(1, 1e9);
    return options;
  }();
  return table;
}

// A step updates a matrix as follows. g is the scaled gradient, m = step^decay_rate, and
// rms(x) = sqrt(mean(x²)):
//   row_means = row_means + (mean(g² over columns) - row_means) / m
//   column_means = column_means + (mean(g² over rows) - column_means) / m
//   second_moment = row_means column_means / mean(row_means)
//   u = g / sqrt(second_moment), divided by max(1, rms(u) / update_clip)
//   parameter = shrink * parameter - rate * max(1e-3, rms(parameter)) * u
// Rows and columns are the last two dimensions of a parameter. Scalars and vectors have no rows and columns.
// The update of a scalar or vector uses
//   second_moment = second_moment + (g² - second_moment) / m
//
// `form` selects the rate, `shrink` and the terms that avoid a division by 0:
// - "pytorch", as torch.optim.Adafactor: rate = min(lr, 1 / sqrt(step)); shrink = 1 - lr weight_decay;
//   mean(row_means) is clamped to at least e, and `second_moment` to at least e², where e is the machine
//   epsilon of the dtype.
// - "trax", as in Trax: rate = lr; shrink = 1 - weight_decay; 1e-30 is added to g².
class Adafactor : public UpdateMethod {
 public:
  Adafactor(const AdafactorOptions& options, double weight_decay, const NamedParameters& parameters);

  UpdateRule prepare_step(double lr, int64_t step) override;
  Tensor update(const std::vector<ParameterUpdate>& updates, const Tensor& rule,
                const Clipping& clipping) override;
  std::vector<std::pair<std::string, Tensor>> state(size_t index) const override;

 private:
  // Running means of the squared gradient of one parameter.
  struct Moments {
    Tensor row_means, column_means;  // defined for parameters of rank 2 or more
    Tensor second_moment;            // defined for scalars and vectors
  };
  // Updates the moments with the scaled gradient `g`. Returns `g` divided by the square root of the estimated
  // second moment of each element.
  Tensor update_moments(const Moments& moments, const Tensor& g) const;
  void update_parameter(const ParameterUpdate& one) const;  // with a scaled gradient
  Tensor get_coefficient(int64_t index) const;

  AdafactorOptions options_;
  double weight_decay_;
  std::vector<Moments> moments_;
  // A tensor of shape (3,) that contains 1 / m, `rate` and `shrink` of the current step.
  Tensor coefficients_;
};

Adafactor::Adafactor(const AdafactorOptions& options, double weight_decay, const NamedParameters& parameters)
    : options_(options), weight_decay_(weight_decay) {
  for (const auto& [name, parameter] : parameters) {
    Shape row = parameter.shape(), column = row;
    Moments moments;
    const auto zeros = [&](const Shape& shape) {
      return Tensor::zeros(shape, parameter.dtype(), parameter.device());
    };
    if (parameter.rank() >= 2) {
      row[-1] = column[-2] = 1;
      moments = {zeros(row), zeros(column), {}};
    } else {
      moments.second_moment = zeros(row);
    }
    moments_.push_back(moments);
  }
  const Tensor like = parameters.empty() ? Tensor::zeros({1}) : parameters[0].second;
  coefficients_ = Tensor::zeros({kCoefficients}, like.dtype(), like.device());
}

UpdateRule Adafactor::prepare_step(double lr, int64_t step) {
  const auto t = static_cast<double>(step);
  const bool trax = options_.form == "trax";
  const double rate = trax ? lr : std::min(lr, 1 / std::sqrt(t));
  const double shrink = 1 - weight_decay_ * (trax ? 1 : lr);
  coefficients_.copy_from(
      Tensor::from_vector<double>({std::pow(t, -options_.decay_rate), rate, shrink}, {kCoefficients}));
  return {};
}

Tensor Adafactor::update(const std::vector<ParameterUpdate>& updates, const Tensor&,
                         const Clipping& clipping) {
  const NoGradScope no_grad;
  return update_with_scaled_gradients(updates, clipping,
                                      [this](const ParameterUpdate& one) { update_parameter(one); });
}

Tensor Adafactor::get_coefficient(int64_t index) const {
  return coefficients_.view({}, {}, index);
}

Tensor Adafactor::update_moments(const Moments& moments, const Tensor& g) const {
  const bool trax = options_.form == "trax";
  const Tensor squares = trax ? add(square(g), kTraxEpsilon) : square(g), mix = get_coefficient(kMix);
  const auto move = [&](const Tensor& moment, const Tensor& target) {
    moment.copy_from(add(moment, mul(sub(target, moment), mix)));
  };
  const double epsilon = get_epsilon(g.dtype());
  if (moments.second_moment.defined()) {
    move(moments.second_moment, squares);
    return div(
        g, sqrt(trax ? moments.second_moment : clamp_to_minimum(moments.second_moment, epsilon * epsilon)));
  }
  move(moments.row_means, mean(squares, -1, true));
  move(moments.column_means, mean(squares, -2, true));
  const Tensor mean_of_rows = mean(moments.row_means, -2, true);
  if (trax) return div(div(g, sqrt(div(moments.row_means, mean_of_rows))), sqrt(moments.column_means));
  const Tensor second_moment =
      div(mul(moments.row_means, moments.column_means), clamp_to_minimum(mean_of_rows, epsilon));
  return div(g, sqrt(clamp_to_minimum(second_moment, epsilon * epsilon)));
}

void Adafactor::update_parameter(const ParameterUpdate& one) const {
  const Tensor p = detach(one.parameter);
  if (p.numel() == 0) return;
  const Tensor u = update_moments(moments_[one.index], one.gradient);
  const Tensor clip = clamp_to_minimum(mul(compute_root_mean_square(u), 1 / options_.update_clip), 1);
  const Tensor size = clamp_to_minimum(compute_root_mean_square(p), kMinRootMeanSquare);
  const Tensor rate = div(mul(size, get_coefficient(kRate)), clip);
  const Tensor decayed = one.decays ? mul(p, get_coefficient(kShrink)) : p;
  one.parameter.copy_from(sub(decayed, mul(u, rate)));
}

std::vector<std::pair<std::string, Tensor>> Adafactor::state(size_t index) const {
  const Moments& moments = moments_[index];
  if (moments.second_moment.defined()) return {{"second", moments.second_moment}};
  return {{"row", moments.row_means}, {"column", moments.column_means}};
}

}  // namespace

OptimizerKind make_adafactor_kind() {
  return {.name = "adafactor",
          .help = "Adafactor, whose second moments of a matrix are a row and a column",
          .options = adafactor_options().specs(),
          .make = [](const OptimizerConfig& config, const OptionValues& options,
                     const NamedParameters& parameters) -> std::unique_ptr<UpdateMethod> {
            return std::make_unique<Adafactor>(adafactor_options().read(options), config.weight_decay,
                                               parameters);
          }};
}

}  // namespace tapeformer
