// Elementary functions for vectorized loops. The float versions have no branches and no calls, so the
// compiler vectorizes loops that use them (`#pragma omp simd`). Their error is at most 3 ulp if the result is
// a normal number; infinities, NaN and overflow follow the standard library. The coefficients of the
// polynomials are weighted minimax fits. The double versions call the standard library, for accurate gradient
// checks.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/cpu/vector.h"

namespace tapeformer::vmath {

namespace detail {

// Adding kRoundingShift to x rounds x to an integer n and writes n to the low bits of the sum. After adding
// kBiasedRoundingShift, the low bits contain n + 127, the exponent bits of 2^n.
inline constexpr float kRoundingShift = 0x1.8p23f, kBiasedRoundingShift = kRoundingShift + 127;
// ln 2 as a sum of two floats. kLn2High has 15 significant bits, so n * kLn2High is exact if |n| < 512.
inline constexpr float kLn2High = 0x1.62e400p-1f, kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// Bounds to which the argument of exp is clamped: exp(-104) rounds to 0, and exp(89) overflows. The bounds
// are defined in another file, because a compiler that knows their values turns the clamping into branches,
// which are slower.
extern const float kExpLow, kExpHigh;

template <class V>
struct IntegerOf;
template <>
struct IntegerOf<float> {
  using type = int32_t;
};
template <>
struct IntegerOf<cpu::Vector<float>> {
  using type = cpu::Vector<int32_t>;
};
template <class V>
using Integer = typename IntegerOf<V>::type;

// Returns c0 + x (c1 + x (c2 + …)).
template <class V>
[[gnu::always_inline]] inline float evaluate_polynomial(V, float c) {
  return c;
}
template <class V, class... Rest>
[[gnu::always_inline]] inline V evaluate_polynomial(V x, float c, Rest... rest) {
  return evaluate_polynomial(x, rest...) * x + c;
}

// Returns 2^n for -127 < n < 128.
template <class V>
[[gnu::always_inline]] inline V power_of_two(Integer<V> n) {
  return std::bit_cast<V>((n + 127) << 23);
}

// The numbers r and n for which x = n ln 2 + r and |r| <= ln 2 / 2. x is first clamped to [kExpLow,
// kExpHigh].
template <class V>
struct ReducedArgument {
  V r;
  V higher_order_terms;  // exp(r) - 1 - r
  Integer<V> n;
};
template <class V>
[[gnu::always_inline]] inline ReducedArgument<V> reduce_argument(V x) {
  const V low = V{} + kExpLow, high = V{} + kExpHigh;
  x = x < low ? low : x;
  x = x > high ? high : x;
  const V shifted = x * 0x1.715476p+0f + kRoundingShift;
  const V n = shifted - kRoundingShift;
  const V r = (x - n * kLn2High) - n * kLn2Low;
  const V q = evaluate_polynomial(r, 0.5f, 0.166665435f, 0.0416662805f, 0.00836658292f, 0.00139464485f);
  return {r, r * r * q, std::bit_cast<Integer<V>>(shifted) - std::bit_cast<int32_t>(kRoundingShift)};
}

template <class V>
[[gnu::always_inline]] inline V exp(V x) {
  const auto [r, higher_order_terms, n] = reduce_argument(x);
  // The factor 2^n is split into two factors, because 2^n itself can be infinite or subnormal.
  const Integer<V> half = n >> 1;
  return (1.0f + (r + higher_order_terms)) * power_of_two<V>(half) * power_of_two<V>(n - half);
}

// Returns log(x + tail) + exponent_shift * ln 2. Requires a positive normal x and a tail much smaller than x.
[[gnu::always_inline]] inline float log_of_normal_number(float x, float tail, float exponent_shift = 0.0f) {
  constexpr uint32_t kSqrtHalfBits = 0x3F3504F3;
  const auto bits = std::bit_cast<int32_t>(x);
  // The subtraction is unsigned, because a signed subtraction may overflow.
  const int32_t k = static_cast<int32_t>(static_cast<uint32_t>(bits) - kSqrtHalfBits) >> 23;
  // The mantissa is in [sqrt(1/2), sqrt(2)).
  const float mantissa = std::bit_cast<float>(static_cast<uint32_t>(bits) - (static_cast<uint32_t>(k) << 23));
  const float f =
      (mantissa - 1.0f) + tail * std::bit_cast<float>(static_cast<uint32_t>(127 - (k < 127 ? k : 126)) << 23);
  const float p = evaluate_polynomial(f, 0.333333313f, -0.250008225f, 0.200012282f, -0.166233361f,
                                      0.142017186f, -0.131603658f, 0.127619669f, -0.0763448924f);
  const float n = static_cast<float>(k) + exponent_shift;
  const float square = f * f;
  return ((f - (0.5f * square - square * f * p)) + n * kLn2Low) + n * kLn2High;
}

// Returns log(x) if x is 0, infinity, negative or NaN. Otherwise returns y.
[[gnu::always_inline]] inline float handle_log_special_values(float y, float x) {
  y = x == 0.0f ? -kInf : y;
  y = x == kInf ? kInf : y;
  return x >= 0.0f ? y : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace detail

[[gnu::always_inline]] inline float exp(float x) {
  return detail::exp(x);
}
[[gnu::always_inline]] inline cpu::Vector<float> exp(cpu::Vector<float> x) {
  return detail::exp(x);
}

// Returns exp(min(x, 0)).
[[gnu::always_inline]] inline float exp_nonpositive(float x) {
  return detail::exp(x > 0 ? 0.0f : x);
}
// Returns exp(min(x, 0)). If x < -86, returns exp(-86), which is about 4.5e-38. The function takes about two
// thirds of the time of exp().
[[gnu::always_inline]] inline cpu::Vector<float> exp_nonpositive(cpu::Vector<float> x) {
  using V = cpu::Vector<float>;
  const V zero{}, low = zero - 86.0f;
  x = x > zero ? zero : x;
  x = x < low ? low : x;
  const V shifted = x * 0x1.715476p+0f + detail::kBiasedRoundingShift;
  const V n = shifted - detail::kBiasedRoundingShift;
  const V r = (x - n * detail::kLn2High) - n * detail::kLn2Low;
  const V y = detail::evaluate_polynomial(r, 1.0f, 1.0f, 0.5f, 0.166665435f, 0.0416662805f, 0.00836658292f,
                                          0.00139464485f);
  // If x is NaN, y is NaN, so the product is NaN for any bits of `shifted`.
  return y * std::bit_cast<V>(std::bit_cast<cpu::Vector<uint32_t>>(shifted) << 23);
}

[[gnu::always_inline]] inline float sqrt(float x) {
  return std::sqrt(x);
}
[[gnu::always_inline]] inline cpu::Vector<float> sqrt(cpu::Vector<float> x) {
  for (int lane = 0; lane < static_cast<int>(cpu::kLanes<float>); ++lane) x[lane] = std::sqrt(x[lane]);
  return x;
}

// Returns exp(x) - 1, accurate around 0.
[[gnu::always_inline]] inline float expm1(float x) {
  const auto [r, higher_order_terms, n] = detail::reduce_argument(x);
  const int32_t half = n >> 1;
  const auto low = detail::power_of_two<float>(half), high = detail::power_of_two<float>(n - half);
  const float y = ((r + higher_order_terms) * low + (low - 1.0f / high)) * high;
  return x == 0.0f ? x : y;
}

[[gnu::always_inline]] inline float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float scaled = x * 0x1p23f;
  const float y = detail::log_of_normal_number(subnormal ? scaled : x, 0.0f, subnormal ? -23.0f : 0.0f);
  return detail::handle_log_special_values(y, x);
}

// Returns log(1 + x), accurate around 0.
[[gnu::always_inline]] inline float log1p(float x) {
  const float w = 1.0f + x;
  const float rounding_error = std::fabs(x) > 1.0f ? 1.0f - (w - x) : x - (w - 1.0f);
  const float y = detail::handle_log_special_values(
      detail::log_of_normal_number(w, w < 0x1p30f ? rounding_error : 0.0f), w);
  return x == 0.0f ? x : y;
}

// Returns log(1 + exp(x)). -softplus(-x) is the logarithm of the sigmoid.
[[gnu::always_inline]] inline float softplus(float x) {
  const float e = exp(-std::fabs(x));
  const float w = 1.0f + e;
  return (x < 0.0f ? 0.0f : x) + detail::log_of_normal_number(w, e - (w - 1.0f));
}

// Returns 1 / (1 + exp(-x)).
[[gnu::always_inline]] inline float sigmoid(float x) {
  const float e = exp(-std::fabs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

[[gnu::always_inline]] inline cpu::Vector<float> sigmoid(cpu::Vector<float> x) {
  return 1.0f / (1.0f + exp(-x));
}

[[gnu::always_inline]] inline float tanh(float x) {
  const float t = expm1(-2.0f * std::fabs(x));
  return std::copysign(-t / (t + 2.0f), x);
}

[[gnu::always_inline]] inline float erf(float x) {
  const float t = x * x;
  const float near = x * detail::evaluate_polynomial(t, 1.12837911f, -0.376124859f, 0.112817124f,
                                                     -0.0267624892f, 0.00498682167f, -0.000595741323f);
  float a = std::fabs(x);
  a = a > 4.0f ? 4.0f : a;  // erf(a) rounds to 1 for a >= 4
  // The polynomial is fitted for a in [0.9, 4].
  const float minus_log_erfc =
      detail::evaluate_polynomial(a, 0.000166446232f, 1.12779725f, 0.636976063f, 0.104113691f, -0.0223152172f,
                                  0.00306549156f, -0.000198219786f);
  const float far = std::copysign(1.0f - exp(-minus_log_erfc), x);
  return std::fabs(x) < 0.92f ? near : far;
}

inline double exp(double x) {
  return std::exp(x);
}
inline cpu::Vector<double> exp(cpu::Vector<double> x) {
  for (int lane = 0; lane < static_cast<int>(cpu::kLanes<double>); ++lane) x[lane] = std::exp(x[lane]);
  return x;
}
inline double exp_nonpositive(double x) {
  return std::exp(x > 0 ? 0 : x);
}
inline cpu::Vector<double> exp_nonpositive(cpu::Vector<double> x) {
  return exp(x > 0 ? cpu::Vector<double>{} : x);
}
inline double sqrt(double x) {
  return std::sqrt(x);
}
inline cpu::Vector<double> sqrt(cpu::Vector<double> x) {
  for (int lane = 0; lane < static_cast<int>(cpu::kLanes<double>); ++lane) x[lane] = std::sqrt(x[lane]);
  return x;
}
inline double expm1(double x) {
  return std::expm1(x);
}
inline double log(double x) {
  return std::log(x);
}
inline double log1p(double x) {
  return std::log1p(x);
}
inline double softplus(double x) {
  return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
}
inline double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
inline cpu::Vector<double> sigmoid(cpu::Vector<double> x) {
  return 1.0 / (1.0 + exp(-x));
}
inline double tanh(double x) {
  return std::tanh(x);
}
inline double erf(double x) {
  return std::erf(x);
}

}  // namespace tapeformer::vmath

namespace tapeformer {

// The functions of namespace vmath as static members. CPU kernels pass this class as the template parameter
// Math to function objects that both backends share.
struct VectorMath {
  template <class T>
  [[gnu::always_inline]] static T exp(T x) {
    return vmath::exp(x);
  }
  template <class T>
  [[gnu::always_inline]] static T exp_nonpositive(T x) {
    return vmath::exp_nonpositive(x);
  }
  template <class T>
  [[gnu::always_inline]] static T expm1(T x) {
    return vmath::expm1(x);
  }
  template <class T>
  [[gnu::always_inline]] static T log(T x) {
    return vmath::log(x);
  }
  template <class T>
  [[gnu::always_inline]] static T log1p(T x) {
    return vmath::log1p(x);
  }
  template <class T>
  [[gnu::always_inline]] static T sqrt(T x) {
    return vmath::sqrt(x);
  }
  template <class T>
  [[gnu::always_inline]] static T tanh(T x) {
    return vmath::tanh(x);
  }
  template <class T>
  [[gnu::always_inline]] static T erf(T x) {
    return vmath::erf(x);
  }
  template <class T>
  [[gnu::always_inline]] static T softplus(T x) {
    return vmath::softplus(x);
  }
  template <class T>
  [[gnu::always_inline]] static T sigmoid(T x) {
    return vmath::sigmoid(x);
  }
};

}  // namespace tapeformer
