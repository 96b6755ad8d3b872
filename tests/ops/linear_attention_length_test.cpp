// Tests that compare linear attention with its quadratic form, for the lengths of MNIST and CIFAR-10 and for
// the largest length in figure 1 of "Transformers are RNNs". The quadratic form is computed for some rows
// only, in float64.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/tape.h"
#include "core/rng.h"
#include "ops/linear_attention.h"

using namespace tapeformer;

namespace {

constexpr int64_t kDim = 8;

Tensor random_input(int64_t length, const char* name) {
  const Tensor x = Tensor::empty({1, length, 1, kDim}, DType::float64);
  const RandomStream stream(5, name);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  return x;
}

double phi(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

// Returns the weights phi(q_i) . phi(k_j) of the keys k_0 to k_i for the query q_i.
std::vector<double> weights_of(const Tensor& q, const Tensor& k, int64_t i) {
  std::vector<double> weights(static_cast<size_t>(i + 1));
  for (int64_t j = 0; j <= i; ++j)
    for (int64_t d = 0; d < kDim; ++d)
      weights[static_cast<size_t>(j)] +=
          phi(q.data<double>()[i * kDim + d]) * phi(k.data<double>()[j * kDim + d]);
  return weights;
}

// Returns the positions of the queries for which linear attention is compared with its quadratic form. The
// positions are at the start, near the end of the first chunk of 96 tokens, in the middle, at the end, and at
// intervals that grow by a factor of 1.5.
std::vector<int64_t> rows_of(int64_t length) {
  std::vector<int64_t> rows = {0, 1, 95, 96, 97, length / 2, length - 2, length - 1};
  for (int64_t row = 191; row < length; row = row * 3 / 2) rows.push_back(row);
  return rows;
}

// The largest differences between linear attention and its quadratic form. `gradient` is the difference of
// the gradients of v, divided by the largest gradient. Only the queries in rows_of() are used.
struct Differences {
  double output = 0, gradient = 0;
};

Differences differences(int64_t length, DType dtype) {
  const Tensor q = random_input(length, "q"), k = random_input(length, "k"), v = random_input(length, "v");
  const LinearAttentionOptions options{.causal = true};
  const Tensor value = set_requires_grad(v.to(dtype));
  const Tensor out = linear_attention(q.to(dtype), k.to(dtype), value, options);
  const Tensor actual = detach(out).to(DType::float64),
               cotangent = Tensor::zeros(out.shape(), DType::float64);
  std::vector<double> expected_gradient(static_cast<size_t>(length));  // equal for all features of v
  Differences largest;
  for (const int64_t i : rows_of(length)) {
    const std::vector<double> weights = weights_of(q, k, i);
    double sum = options.eps;
    for (const double weight : weights) sum += weight;
    const bool repeated = cotangent.data<double>()[i * kDim] != 0;
    for (int64_t d = 0; d < kDim; ++d) {
      double expected = 0;
      for (int64_t j = 0; j <= i; ++j)
        expected += weights[static_cast<size_t>(j)] * v.data<double>()[j * kDim + d];
      largest.output =
          std::max(largest.output, std::abs(actual.data<double>()[i * kDim + d] - expected / sum));
      cotangent.data<double>()[i * kDim + d] = 1;
    }
    for (size_t j = 0; j < weights.size() && !repeated; ++j) expected_gradient[j] += weights[j] / sum;
  }
  backward(out, cotangent.to(dtype));
  const Tensor gv = gradient(value).to(DType::float64);
  double scale = 0;
  for (int64_t j = 0; j < length; ++j) {
    scale = std::max(scale, expected_gradient[static_cast<size_t>(j)]);
    for (int64_t d = 0; d < kDim; ++d)
      largest.gradient = std::max(largest.gradient, std::abs(gv.data<double>()[j * kDim + d] -
                                                             expected_gradient[static_cast<size_t>(j)]));
  }
  largest.gradient /= scale;
  return largest;
}

}  // namespace

TEST_CASE("linear attention equals its quadratic form at 783, 3,071 and 65,536 tokens") {
  for (const int64_t length : {783, 3071, 65536}) {
    CAPTURE(length);
    const Differences exact = differences(length, DType::float64),
                      single = differences(length, DType::float32);
    CHECK(exact.output < 1e-11);
    CHECK(exact.gradient < 1e-11);
    // The rounding error of a sum of `length` float32 terms grows in proportion to the square root of
    // `length`.
    const double bound = 4 * 0x1p-24 * std::sqrt(static_cast<double>(length)) * kDim;
    CHECK(single.output < bound);
    CHECK(single.gradient < bound);
  }
}
