#include "ops/rotary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/sum.h"
#include "ops/view.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Computes the rotary embedding of x from the definition, with a sine and a cosine for each element of x.
// `first` is the position of the first row of x.
Tensor rotation_by_definition(const Tensor& x, double base, int64_t first) {
  const Tensor out = Tensor::empty_like(x);
  const int64_t length = x.size(1), heads = x.size(2), dim = x.size(3), half = dim / 2;
  for (int64_t row = 0; row < x.size(0) * length * heads; ++row)
    for (int64_t i = 0; i < half; ++i) {
      const auto position = static_cast<double>(first + row / heads % length);
      const double angle = position / std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
      const double* const source = x.data<double>() + row * dim;
      double* const target = out.data<double>() + row * dim;
      target[i] = source[i] * std::cos(angle) - source[half + i] * std::sin(angle);
      target[half + i] = source[half + i] * std::cos(angle) + source[i] * std::sin(angle);
    }
  return out;
}

double product(const Tensor& a, int64_t i, const Tensor& b, int64_t j) {
  double sum = 0;
  for (int64_t d = 0; d < a.size(3); ++d)
    sum += a.data<double>()[i * a.size(3) + d] * b.data<double>()[j * b.size(3) + d];
  return sum;
}

}  // namespace

TEST_CASE("rotary_embedding() equals its definition, also for large positions") {
  for (const int64_t length : {0, 1, 63, 64, 65, 200}) {
    const Tensor x = normal({2, length, 3, 6});
    CHECK(max_difference(rotary_embedding(x), rotation_by_definition(x, 10000, 0)) < 1e-12);
    CHECK(max_difference(rotary_embedding(x, {.base = 500, .first_position = 1'000'000}),
                         rotation_by_definition(x, 500, 1'000'000)) < 1e-8);
  }
}

TEST_CASE("rotary_embedding() rotates the first features as a narrower head, and copies the others") {
  const Tensor x = normal({2, 70, 3, 7});
  const Tensor all = rotary_embedding(x, {.base = 500, .features = 4, .first_position = 2});
  CHECK(max_difference(slice(all, 3, 0, 4), rotation_by_definition(slice(x, 3, 0, 4).clone(), 500, 2)) <
        1e-12);
  CHECK(max_difference(slice(all, 3, 4, 7), slice(x, 3, 4, 7)) == 0);
  const Tensor token = slice(x, 1, 5, 6).clone().view({2, 3, 7});
  rotate_token_in_place(token, {.base = 500, .features = 4, .first_position = 7});
  CHECK(max_difference(token, slice(all, 1, 5, 6).clone().view({2, 3, 7})) < 1e-12);
  CHECK_THROWS_WITH_AS(rotary_embedding(x, {.features = 8}),
                       doctest::Contains("8 rotated features of (2, 70, 3, 7) must be even and at most"),
                       ShapeError);
  CHECK_THROWS_AS(rotary_embedding(x, {.features = 3}), ShapeError);
}

TEST_CASE("scaled rotary positions have the angles of Llama 3 and of YaRN") {
  constexpr double kTurn = 6.283185307179586;
  constexpr int64_t kFeatures = 16, kPairs = kFeatures / 2;
  const RotaryOptions plain{.base = 1000};
  const std::vector<double> angles = compute_rotary_angles(plain, kFeatures);
  const auto scaled = [&](const RotaryScaling& scaling) {
    return compute_rotary_angles({.base = 1000, .scaling = scaling}, kFeatures);
  };
  const auto check_equal = [](double a, double b) { CHECK(a == doctest::Approx(b).epsilon(1e-12)); };
  const auto halves = scaled({.kind = RotaryScalingKind::linear, .factor = 2});
  const auto llama = scaled({.kind = RotaryScalingKind::llama3, .factor = 8, .length = 64});
  const auto yarn = scaled({.kind = RotaryScalingKind::yarn, .factor = 8, .length = 64, .fast = 8});
  // The pairs that make 8 turns and 1 turn in 64 tokens.
  const double first = std::floor(kPairs * std::log(64 / (8 * kTurn)) / std::log(1000)),
               last = std::ceil(kPairs * std::log(64 / kTurn) / std::log(1000));
  int64_t between = 0;
  for (size_t i = 0; i < angles.size(); ++i) {
    check_equal(angles[i], std::pow(1000, -static_cast<double>(i) / kPairs));
    check_equal(halves[i], angles[i] / 2);
    const double turns = 64 * angles[i] / kTurn, share = (turns - 1) / 3;
    between += turns > 1 && turns < 4;
    check_equal(llama[i], turns > 4   ? angles[i]
                          : turns < 1 ? angles[i] / 8
                                      : (1 - share) * angles[i] / 8 + share * angles[i]);
    const double ramp = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    check_equal(yarn[i], ramp * angles[i] / 8 + (1 - ramp) * angles[i]);
  }
  CHECK(between > 0);
  const Tensor x = normal({1, 1, 1, 4});
  const RotaryScaling amplified{.kind = RotaryScalingKind::yarn, .factor = 4, .length = 8};
  const Tensor rotated = rotary_embedding(x, {.scaling = amplified});
  for (int64_t i = 0; i < 4; ++i)
    check_equal(rotated.data<double>()[i], x.data<double>()[i] * (1 + 0.1 * std::log(4.0)));
}

TEST_CASE("scalings of rotary positions without a length or with an empty ramp are errors") {
  const Tensor x = normal({1, 2, 1, 4});
  const auto error = [&](const RotaryScaling& scaling) {
    try {
      rotary_embedding(x, {.scaling = scaling});
    } catch (const ShapeError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using enum RotaryScalingKind;
  CHECK(error({.kind = linear, .factor = 0}).find("factor 0 must be positive") != std::string::npos);
  CHECK(error({.kind = llama3, .factor = 2}).find("length 0 must be positive") != std::string::npos);
  CHECK(error({.kind = yarn, .factor = 2, .length = 4, .slow = 4}).find("expected 0 < slow < fast") !=
        std::string::npos);
}

TEST_CASE("products of rotated rows depend only on the difference of positions") {
  const Tensor row_q = normal({1, 1, 1, 8}, 1), row_k = normal({1, 1, 1, 8}, 2);
  const auto repeated = [](const Tensor& row) {
    const Tensor all = Tensor::empty({1, 90, 1, 8}, DType::float64);
    for (int64_t i = 0; i < 90; ++i) std::copy_n(row.data<double>(), 8, all.data<double>() + i * 8);
    return all;
  };
  const Tensor q = rotary_embedding(repeated(row_q)), k = rotary_embedding(repeated(row_k));
  for (const int64_t offset : {0, 1, 7, 40})
    CHECK(std::abs(product(q, 10 + offset, k, 10) - product(q, 45 + offset, k, 45)) < 1e-12);
  CHECK(std::abs(product(q, 11, k, 10) - product(q, 17, k, 10)) > 1e-3);
}

TEST_CASE("rotate_token_in_place() rotates one token in the same way as rotary_embedding()") {
  const Tensor x = normal({2, 70, 3, 4});
  const Tensor all = rotary_embedding(x);
  for (const int64_t position : {0, 1, 63, 64, 69}) {
    const auto token = [&](const Tensor& t) {
      return t.view({2, 3, 4}, {t.strides()[0], 4, 1}, position * 12).clone();
    };
    const Tensor one = token(x);
    rotate_token_in_place(one, {.first_position = position});
    CHECK(max_difference(one, token(all)) < 1e-12);
  }
}

TEST_CASE("successive tokens that differ in one option are rotated as rows of a sequence") {
  const Tensor x = normal({2, 9, 3, 8}), token = slice(x, 1, 8, 9).clone();
  const RotaryOptions base{.base = 500, .features = 4, .first_position = 3};
  RotaryOptions position = base, other_base = base, wider = base, linear = base, scaled = base;
  position.first_position = 4;
  other_base.base = 501;
  wider.features = 6;
  linear.scaling = {.kind = RotaryScalingKind::linear, .factor = 2};
  scaled.scaling = {.kind = RotaryScalingKind::yarn, .factor = 2, .length = 64, .amplitude = 1.5};
  RotaryOptions louder = scaled;
  louder.scaling.amplitude = 2;
  for (const RotaryOptions& other : {position, other_base, wider, linear, scaled, louder})
    for (const RotaryOptions& options : {base, other, scaled}) {
      RotaryOptions later = options;
      later.first_position += 8;
      CHECK(max_difference(rotary_embedding(token, later),
                           slice(rotary_embedding(x, options), 1, 8, 9).clone()) < 1e-12);
    }
  const Tensor leaf = set_requires_grad(token.clone());
  backward(sum(square(rotary_embedding(leaf, base))));  // a rotation keeps the norm, so its gradient is 2 x
  CHECK(max_difference(gradient(leaf), mul(token, 2)) < 1e-12);
}

TEST_CASE("rotary_embedding() takes bfloat16, and refuses odd dims and other ranks") {
  const Tensor x = normal({1, 5, 2, 8});
  const Tensor rounded = rotary_embedding(x.to(DType::bfloat16));
  CHECK(rounded.dtype() == DType::bfloat16);
  CHECK(max_difference(rounded.to(DType::float64), rotary_embedding(x)) < 0.05);
  CHECK_THROWS_WITH_AS(rotary_embedding(normal({1, 2, 3, 5})), doctest::Contains("(1, 2, 3, 5) must be even"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(rotary_embedding(normal({1, 2, 4})),
                       doctest::Contains("must be (batch, length, heads, dim)"), ShapeError);
  CHECK_THROWS_WITH_AS(rotary_embedding(x, {.base = 1}), doctest::Contains("base must be greater than 1"),
                       ShapeError);
  CHECK_THROWS_AS(rotate_token_in_place(normal({2, 4, 3}), {}), ShapeError);
}
