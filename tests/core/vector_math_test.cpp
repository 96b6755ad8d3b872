#include "core/cpu/vector_math.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

double softplus_of(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}
double sigmoid_of(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

// Returns the error of `value` in units in the last place (ulp) of `exact`. If `exact` is subnormal, the unit
// is the ulp of the smallest normal number. If `value` or `exact` is an infinity or NaN, returns 0 if both
// are the same, and 1e30 otherwise. If `exact` is close to the largest float, infinity is also correct.
double ulps(float value, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(rounded) || std::isinf(rounded) || std::isinf(value) || std::isnan(value)) {
    const bool same = std::isnan(rounded) ? std::isnan(value) : value == rounded;
    const bool at_overflow = std::fabs(exact) > 3.40282e38 && std::fabs(exact) < 3.40283e38;
    return same || at_overflow ? 0 : 1e30;
  }
  const double size = std::max(std::fabs(exact), 0x1p-126);
  return std::fabs(value - exact) / std::ldexp(1.0, std::ilogb(size) - 23);
}

// Returns special values, floats whose bit patterns are evenly spaced in [0, 2^32), and floats that are
// evenly spaced in [-120, 120]. The values include all exponents, both signs, subnormals, infinities and NaN.
const std::vector<float>& every_kind_of_float() {
  static const std::vector<float> values = [] {
    std::vector<float> v = {0.0f,      -0.0f, 1.0f,     -1.0f,    INFINITY,
                            -INFINITY, NAN,   88.7228f, 88.7229f, -87.3365f};
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 1999)
      v.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    for (int i = -200000; i <= 200000; ++i) v.push_back(static_cast<float>(i) * 6e-4f);
    return v;
  }();
  return values;
}

template <class F, class Exact>
void check_against(const std::string& name, F f, Exact exact, double limit) {
  const std::vector<float>& x = every_kind_of_float();
  std::vector<float> y(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
  double worst = 0;
  float worst_at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], exact(static_cast<double>(x[i])));
    if (error > worst) {
      worst = error;
      worst_at = x[i];
    }
  }
  INFO(name, " is worst at ", worst_at, " by ", worst, " ulp");
  CHECK(worst <= limit);
}

}  // namespace

TEST_CASE("vector math in float has errors of a few ulp for arguments of all magnitudes") {
  auto check_one = [](const char* name, auto f, auto exact, double limit) {
    check_against(name, f, exact, limit);
  };
  check_one(
      "exp", [](float x) { return vmath::exp(x); }, [](double x) { return std::exp(x); }, 1.5);
  check_one(
      "expm1", [](float x) { return vmath::expm1(x); }, [](double x) { return std::expm1(x); }, 2);
  check_one(
      "log", [](float x) { return vmath::log(x); }, [](double x) { return std::log(x); }, 1.5);
  check_one(
      "log1p", [](float x) { return vmath::log1p(x); }, [](double x) { return std::log1p(x); }, 2);
  check_one(
      "softplus", [](float x) { return vmath::softplus(x); }, softplus_of, 2.5);
  check_one(
      "sigmoid", [](float x) { return vmath::sigmoid(x); }, sigmoid_of, 2.5);
  check_one(
      "tanh", [](float x) { return vmath::tanh(x); }, [](double x) { return std::tanh(x); }, 3);
  check_one(
      "erf", [](float x) { return vmath::erf(x); }, [](double x) { return std::erf(x); }, 3);
}

TEST_CASE("exp_nonpositive() equals exp() down to -86, and is constant below -86") {
  using V = cpu::Vector<float>;
  double worst = 0;
  for (float x = 0; x > -86; x -= 3e-4f)
    worst = std::max(worst, ulps(vmath::exp_nonpositive(V{} + x)[3], std::exp(double{x})));
  CHECK(worst < 1.5);
  CHECK(vmath::exp_nonpositive(-1.0f) == vmath::exp(-1.0f));
  CHECK(vmath::exp_nonpositive(3.0f) == 1);
  CHECK(std::isnan(vmath::exp_nonpositive(NAN)));
  const V ends = vmath::exp_nonpositive(V{-INFINITY, -1e9f, -87, -0.0f, 3, INFINITY, NAN, -86});
  for (int lane : {0, 1, 2}) CHECK(ends[lane] == ends[7]);
  for (int lane : {3, 4, 5}) CHECK(ends[lane] == 1);
  CHECK(ends[7] < 5e-38f);
  CHECK(std::isnan(ends[6]));
}

TEST_CASE("vector math keeps the sign of zero and is exact where the result is exact") {
  CHECK(vmath::exp(0.0f) == 1.0f);
  CHECK(vmath::exp(-INFINITY) == 0.0f);
  CHECK(vmath::log(1.0f) == 0.0f);
  CHECK(vmath::sigmoid(0.0f) == 0.5f);
  for (const float zero : {0.0f, -0.0f}) {
    CHECK(std::signbit(vmath::tanh(zero)) == std::signbit(zero));
    CHECK(std::signbit(vmath::erf(zero)) == std::signbit(zero));
    CHECK(std::signbit(vmath::expm1(zero)) == std::signbit(zero));
    CHECK(std::signbit(vmath::log1p(zero)) == std::signbit(zero));
  }
  CHECK(vmath::softplus(-800.0) == 0.0);
  CHECK(vmath::softplus(800.0) == 800.0);
  CHECK(vmath::sigmoid(-800.0) == 0.0);
}

TEST_CASE("exp_nonpositive() of NaN with any sign and payload is NaN") {
  using V = cpu::Vector<float>;
  for (uint32_t payload = 1; payload < 1u << 23; payload = payload * 3 + 1)
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto x = std::bit_cast<float>(sign | 0x7F800000u | payload);
      CAPTURE(payload);
      CHECK(std::isnan(vmath::exp_nonpositive(V{} + x)[0]));
    }
}
