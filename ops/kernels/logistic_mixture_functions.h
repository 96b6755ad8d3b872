// Log-probability of one component of the discretised mixture of logistics, for the kernels of both backends.
// ops/kernels/elementwise_functions.h describes the template parameter Math.
#pragma once

#include "core/base/host_device.h"

namespace tapeformer {

inline constexpr double kMinLogisticLogScale = -7;  // smaller log-scales are replaced by this value
// If the probability of a level is at most this threshold, kernels approximate it by the density at the
// center of the level, multiplied by the width of the level.
inline constexpr double kLogisticMassThreshold = 1e-5;

// Whether a level is the lowest or the highest level. The interval of the lowest level extends to -infinity,
// and the interval of the highest level extends to infinity.
enum class LogisticEdge { none, low, high };

// The log-probability of a level under one component, and its derivatives with respect to the mean and
// log-scale of the component.
template <class T>
struct LogisticComponent {
  T log_mass, mean_derivative, log_scale_derivative;
};

// Computes the LogisticComponent of the level with the center y in [-1, 1]. half_width is half of the width
// of a level, and log_width is the logarithm of the width. The probability of a level with two finite ends is
// sigmoid(plus) - sigmoid(minus), where
//   plus = (y - mean + half_width) / scale and minus = (y - mean - half_width) / scale.
// To avoid cancellation, the function computes the probability as
//   sigmoid(plus) * sigmoid(-minus) * (1 - exp(minus - plus)).
template <class Math, LogisticEdge edge, class T>
[[gnu::always_inline]] inline TAPEFORMER_HOST_DEVICE LogisticComponent<T> compute_logistic_component(
    T y, T mean, T raw_log_scale, T half_width, T log_width) {
  const bool is_clamped = raw_log_scale < T(kMinLogisticLogScale);
  const T log_scale = is_clamped ? T(kMinLogisticLogScale) : raw_log_scale;
  const T inverse_scale = Math::exp(-log_scale);
  const T plus = inverse_scale * (y - mean + half_width), minus = inverse_scale * (y - mean - half_width);
  LogisticComponent<T> out{};
  if constexpr (edge == LogisticEdge::low) {
    const T slope = Math::sigmoid(-plus);
    out = {-Math::softplus(-plus), -inverse_scale * slope, -plus * slope};
  } else if constexpr (edge == LogisticEdge::high) {
    const T slope = Math::sigmoid(minus);
    out = {-Math::softplus(minus), inverse_scale * slope, minus * slope};
  } else {
    const T interval_factor = -Math::expm1(T(-2) * half_width * inverse_scale);
    const T upper_tail = Math::sigmoid(-minus), lower_tail = Math::sigmoid(plus);
    const T mass = lower_tail * upper_tail * interval_factor;
    const T plus_derivative = Math::sigmoid(-plus) / (upper_tail * interval_factor),
            minus_derivative = -Math::sigmoid(minus) / (lower_tail * interval_factor);
    const T standardized = inverse_scale * (y - mean);
    const T slope = 1 - 2 * Math::sigmoid(standardized);
    const T log_density = standardized - log_scale - 2 * Math::softplus(standardized) + log_width;
    const bool is_exact = mass > T(kLogisticMassThreshold);
    out.log_mass = is_exact ? Math::log(mass) : log_density;
    out.mean_derivative = -inverse_scale * (is_exact ? plus_derivative + minus_derivative : slope);
    out.log_scale_derivative =
        is_exact ? -(plus * plus_derivative + minus * minus_derivative) : -standardized * slope - 1;
  }
  out.log_scale_derivative = is_clamped ? T{0} : out.log_scale_derivative;
  return out;
}

}  // namespace tapeformer
