#include "ops/random_features.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/base/errors.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kProjectedDim = 5, kFeatureCount = 12;

double row_product(const Tensor& matrix, int64_t a, int64_t b) {
  const int64_t dim = matrix.size(1);
  const double* const data = matrix.data<double>();
  double total = 0;
  for (int64_t j = 0; j < dim; ++j) total += data[a * dim + j] * data[b * dim + j];
  return total;
}

// Returns the features of a row x (dim,) by their definition, for the projection w (features, dim).
std::vector<double> expected_features(const double* x, const Tensor& w, RandomFeatureMap map, double offset) {
  const int64_t features = w.size(0), dim = w.size(1);
  const double root = std::pow(static_cast<double>(dim), 0.25);
  std::vector<double> u(static_cast<size_t>(features));
  double largest = -INFINITY, squares = 0;
  for (int64_t j = 0; j < dim; ++j) squares += x[j] / root * x[j] / root;
  for (int64_t i = 0; i < features; ++i) {
    for (int64_t j = 0; j < dim; ++j)
      u[static_cast<size_t>(i)] += w.data<double>()[i * dim + j] * x[j] / root;
    largest = std::max(largest, u[static_cast<size_t>(i)]);
  }
  for (double& value : u) {
    if (map == RandomFeatureMap::relu)
      value = std::max(value, 0.0) / std::sqrt(static_cast<double>(features)) + offset;
    else
      value = std::exp(value - (map == RandomFeatureMap::softmax_key ? squares / 2 : largest));
  }
  return u;
}

}  // namespace

TEST_CASE("random features equal their definitions") {
  const Tensor x = normal({2, 3, 2, kProjectedDim});
  const Tensor w =
      make_random_projection(kProjectedDim, {.features = kFeatureCount}, RandomStream(1, "projection"));
  for (const RandomFeatureMap map :
       {RandomFeatureMap::softmax_query, RandomFeatureMap::softmax_key, RandomFeatureMap::relu}) {
    const Tensor y = random_features(x, w, map, 0.01);
    REQUIRE(y.shape() == Shape{2, 3, 2, kFeatureCount});
    for (int64_t row = 0; row < 12; ++row) {
      const auto expected = expected_features(x.data<double>() + row * kProjectedDim, w, map, 0.01);
      for (int64_t i = 0; i < kFeatureCount; ++i)
        CHECK(y.data<double>()[row * kFeatureCount + i] ==
              doctest::Approx(expected[static_cast<size_t>(i)]).epsilon(1e-13));
    }
    const Tensor token = x.view({2, kProjectedDim}, {kProjectedDim, 1}).clone().view({1, 2, kProjectedDim});
    const Tensor out = Tensor::empty({1, 2, kFeatureCount}, DType::float64);
    random_features_into(token, w, map, 0.01, out);
    CHECK(max_difference(out, y.view({1, 2, kFeatureCount}, {2 * kFeatureCount, kFeatureCount, 1})) == 0);
  }
}

TEST_CASE("rows of an orthogonal projection are orthogonal in groups and have norms of normal vectors") {
  const int64_t features = 2 * kProjectedDim + 2;
  const Tensor w =
      make_random_projection(kProjectedDim, {.features = features}, RandomStream(1, "projection"));
  for (int64_t i = 0; i < features; ++i)
    for (int64_t j = 0; j < i; ++j) {
      const double product = std::abs(row_product(w, i, j));
      if (i / kProjectedDim == j / kProjectedDim)
        CHECK(product < 1e-14);
      else
        CHECK(product > 1e-6);
    }
  for (const bool orthogonal : {false, true}) {
    double squares = 0;
    const int64_t rows = 4000;
    const Tensor many = make_random_projection(kProjectedDim, {.features = rows, .orthogonal = orthogonal},
                                               RandomStream(2, "projection"));
    for (int64_t i = 0; i < rows; ++i) squares += row_product(many, i, i);
    // The squared norm of a row of normal numbers has the mean dim and the variance 2 dim.
    const double deviation = std::sqrt(2.0 * kProjectedDim / static_cast<double>(rows));
    CHECK(std::abs(squares / static_cast<double>(rows) - kProjectedDim) < 4 * deviation);
  }
}

TEST_CASE("a projection depends only on its arguments, and antithetic rows are negatives of each other") {
  const auto draw = [](uint64_t seed, uint64_t step, bool antithetic) {
    return make_random_projection(kProjectedDim, {.features = kFeatureCount, .antithetic = antithetic},
                                  RandomStream(seed, "projection", step));
  };
  const Tensor first = draw(1, 0, false);
  CHECK(max_difference(first, draw(1, 0, false)) == 0);
  CHECK(max_difference(first, draw(1, 1, false)) > 0);
  CHECK(max_difference(first, draw(2, 0, false)) > 0);
  const Tensor pairs = draw(1, 0, true);
  for (int64_t i = 0; i < kFeatureCount / 2 * kProjectedDim; ++i)
    CHECK(pairs.data<double>()[i] == -pairs.data<double>()[kFeatureCount / 2 * kProjectedDim + i]);
}

TEST_CASE("products of random features are unbiased estimates of exp(q . k / sqrt(dim))") {
  const Tensor x = normal({1, 2, 1, kProjectedDim}, 3);
  const double* const q = x.data<double>();
  double score = 0;
  for (int64_t j = 0; j < kProjectedDim; ++j) score += q[j] * q[kProjectedDim + j];
  const double expected = std::exp(score / std::sqrt(static_cast<double>(kProjectedDim)));
  for (const bool orthogonal : {false, true})
    for (const bool antithetic : {false, true}) {
      constexpr int kDraws = 2000;
      double sum = 0, sum_of_squares = 0;
      for (uint64_t draw = 0; draw < kDraws; ++draw) {
        const Tensor w = make_random_projection(
            kProjectedDim, {.features = kFeatureCount, .orthogonal = orthogonal, .antithetic = antithetic},
            RandomStream(5, "projection", draw));
        const Tensor y = random_features(x, w, RandomFeatureMap::softmax_key).view({2, kFeatureCount});
        const double estimate = row_product(y, 0, 1) / kFeatureCount;
        sum += estimate;
        sum_of_squares += estimate * estimate;
      }
      const double mean = sum / kDraws;
      const double deviation = std::sqrt((sum_of_squares / kDraws - mean * mean) / kDraws);
      CAPTURE(deviation);
      CHECK(std::abs(mean - expected) < 4 * deviation);
      CHECK(deviation < 0.1 * expected);
    }
}

TEST_CASE("random features refuse mismatched shapes and dtypes") {
  const Tensor x = normal({1, 2, 1, kProjectedDim}), w = normal({kFeatureCount, kProjectedDim});
  const auto map = RandomFeatureMap::relu;
  CHECK_THROWS_WITH_AS(random_features(x, normal({kFeatureCount, 4}), map),
                       doctest::Contains("projection (12, 4) must be (features, 5)"), ShapeError);
  CHECK_THROWS_AS(random_features(normal({2, kProjectedDim}), w, map), ShapeError);
  CHECK_THROWS_AS(random_features(x, w.to(DType::float32), map), ShapeError);
  CHECK_THROWS_AS(random_features_into(normal({1, 1, kProjectedDim}), w, map, 0, normal({1, 1, 3})),
                  ShapeError);
  CHECK_THROWS_WITH_AS(make_random_projection(kProjectedDim, {.features = 3, .antithetic = true},
                                              RandomStream(1, "projection")),
                       doctest::Contains("even number of features, not 3"), ShapeError);
}
