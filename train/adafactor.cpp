#include "train/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"

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

}  // namespace

Adafactor::Adafactor(const OptimizerConfig& config, const std::vector<Tensor>& parameters) : config_(config) {
  for (const Tensor& parameter : parameters) {
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
  const Tensor like = parameters.empty() ? Tensor::zeros({1}) : parameters[0];
  coefficients_ = Tensor::zeros({kCoefficients}, like.dtype(), like.device());
}

void Adafactor::prepare_step(double lr, int64_t step) {
  const auto t = static_cast<double>(step);
  const bool trax = config_.form == "trax";
  const double rate = trax ? lr : std::min(lr, 1 / std::sqrt(t));
  const double shrink = 1 - config_.weight_decay * (trax ? 1 : lr);
  coefficients_.copy_from(
      Tensor::from_vector<double>({std::pow(t, -config_.decay_rate), rate, shrink}, {kCoefficients}));
}

Tensor Adafactor::get_coefficient(int64_t index) const {
  return coefficients_.view({}, {}, index);
}

Tensor Adafactor::update_moments(const Moments& moments, const Tensor& g) const {
  const bool trax = config_.form == "trax";
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

void Adafactor::update_parameter(size_t index, const Tensor& parameter, const Tensor& gradient,
                                 const Tensor& scale) const {
  const Tensor p = detach(parameter);
  if (p.numel() == 0) return;
  const Tensor g = mul(gradient, scale.to(p.dtype())), u = update_moments(moments_[index], g);
  const Tensor clip = clamp_to_minimum(mul(compute_root_mean_square(u), 1 / config_.update_clip), 1);
  const Tensor size = clamp_to_minimum(compute_root_mean_square(p), kMinRootMeanSquare);
  const Tensor rate = div(mul(size, get_coefficient(kRate)), clip);
  parameter.copy_from(sub(mul(p, get_coefficient(kShrink)), mul(u, rate)));
}

std::vector<std::pair<std::string, Tensor>> Adafactor::state(size_t index) const {
  const Moments& moments = moments_[index];
  if (moments.second_moment.defined()) return {{"second", moments.second_moment}};
  return {{"row", moments.row_means}, {"column", moments.column_means}};
}

}  // namespace tapeformer
