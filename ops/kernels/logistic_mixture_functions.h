// One component of the discretised mixture of logistics, for both backends.
// ops/kernels/elementwise_functions.h describes the parameter Math.
#pragma once

#include "core/host_device.h"

namespace tapeformer {

inline constexpr double kMinLogisticScale = -7;  // lower limit of log-scales
// If the probability of a level is at most this value, the density times the width of the level is used
// instead of the difference of two sigmoids.
inline constexpr double kTinyLogisticMass = 1e-5;

enum class LogisticEdge { none, low, high };

// The log-probability of a level under one component, and its derivatives with respect to the mean and
// log-scale of the component.
template <class T>
struct LogisticComponent {
  T log_mass, by_mean, by_log_scale;
};

// Computes LogisticComponent for the level of the target y in [-1, 1]. `half` is half of the width of a
// level, and log_width the logarithm of the width. plus and minus are the upper and lower ends of the level
// in units of the scale. The probability between minus and plus is written as the product sigmoid(plus)
// sigmoid(-minus) (1 - exp(minus - plus)), which avoids cancellation.
template <class Math, LogisticEdge edge, class T>
[[gnu::always_inline]] inline TAPEFORMER_HOST_DEVICE LogisticComponent<T> logistic_component(T y, T mean,
                                                                                             T raw_log_scale,
                                                                                             T half,
                                                                                             T log_width) {
  const bool clamped = raw_log_scale < T(kMinLogisticScale);
  const T log_scale = clamped ? T(kMinLogisticScale) : raw_log_scale;
  const T inverse = Math::exp(-log_scale);
  const T plus = inverse * (y - mean + half), minus = inverse * (y - mean - half);
  LogisticComponent<T> out{};
  if constexpr (edge == LogisticEdge::low) {
    const T slope = Math::sigmoid(-plus);
    out = {-Math::softplus(-plus), -inverse * slope, -plus * slope};
  } else if constexpr (edge == LogisticEdge::high) {
    const T slope = Math::sigmoid(minus);
    out = {-Math::softplus(minus), inverse * slope, minus * slope};
  } else {
    const T share = -Math::expm1(T(-2) * half * inverse);
    const T above = Math::sigmoid(-minus), below = Math::sigmoid(plus);
    const T mass = below * above * share;
    const T by_plus = Math::sigmoid(-plus) / (above * share),
            by_minus = -Math::sigmoid(minus) / (below * share);
    const T middle = inverse * (y - mean);
    const T slope = 1 - 2 * Math::sigmoid(middle);
    const T density = middle - log_scale - 2 * Math::softplus(middle) + log_width;
    const bool exact = mass > T(kTinyLogisticMass);
    out.log_mass = exact ? Math::log(mass) : density;
    out.by_mean = -inverse * (exact ? by_plus + by_minus : slope);
    out.by_log_scale = exact ? -(plus * by_plus + minus * by_minus) : -middle * slope - 1;
  }
  out.by_log_scale = clamped ? T{0} : out.by_log_scale;
  return out;
}

}  // namespace tapeformer
