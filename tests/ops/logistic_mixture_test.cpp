#include "ops/logistic_mixture.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

double sigmoid(long double x) {
  return static_cast<double>(1 / (1 + expl(-x)));
}

// Returns the negative log-likelihood of the level `target` (0 to 255) by its definition, computed in long
// double. `p` contains the logits, means and log-scales of the mixture.
double oracle(const std::vector<double>& p, int target) {
  const size_t mixtures = p.size() / 3;
  const long double y = target / 255.0L * 2 - 1;
  long double prior = 0, total = 0;
  for (size_t k = 0; k < mixtures; ++k) prior += expl(p[k]);
  for (size_t k = 0; k < mixtures; ++k) {
    const long double log_scale = std::max(p[2 * mixtures + k], -7.0), s = expl(log_scale),
                      d = y - p[mixtures + k];
    const long double plus = (d + 1 / 255.0L) / s, minus = (d - 1 / 255.0L) / s;
    const long double mass = 1 / (1 + expl(-plus)) - 1 / (1 + expl(-minus));
    long double q = mass;
    if (y < -0.999L)
      q = 1 / (1 + expl(-plus));
    else if (y > 0.999L)
      q = 1 / (1 + expl(minus));
    else if (mass <= 1e-5L)
      q = expl(d / s - log_scale - 2 * log1pl(expl(d / s))) / 127.5L;
    total += expl(p[k]) / prior * q;
  }
  return static_cast<double>(-logl(total));
}

// Returns the parameters of 60 mixtures and sets their targets. The rows include both edge levels, tiny
// probabilities, clamped scales and ordinary values, so they reach every branch of the loss.
Tensor branch_rows(Tensor& targets) {
  constexpr int64_t kRows = 60, kMixtures = 4;
  const Tensor p = normal({kRows, 3 * kMixtures}, 5);
  std::vector<int64_t> y;
  for (int64_t row = 0; row < kRows; ++row) {
    double* const scales = p.data<double>() + row * 3 * kMixtures + 2 * kMixtures;
    for (int64_t k = 0; k < kMixtures; ++k)
      scales[k] = row % 3 == 0 ? -8.5 + scales[k] : row % 3 == 1 ? -2 + scales[k] : -5.5 + 0.3 * scales[k];
    y.push_back(row % 5 == 0 ? 0 : row % 5 == 1 ? 255 : (row * 37) % 254 + 1);
  }
  targets = Tensor::from_vector<int64_t>(y, {kRows});
  return p;
}

}  // namespace

TEST_CASE("the loss of a mixture of logistics equals its definition in every branch") {
  Tensor targets;
  const Tensor p = branch_rows(targets);
  const auto nll = logistic_mixture_nll(p, targets).to_vector();
  const auto single = logistic_mixture_nll(p.to(DType::float32), targets).to_vector();
  double mean = 0;
  for (size_t row = 0; row < nll.size(); ++row) {
    const std::vector<double> parameters(p.data<double>() + row * 12, p.data<double>() + (row + 1) * 12);
    const double expected = oracle(parameters, static_cast<int>(targets.data<int64_t>()[row]));
    CHECK(nll[row] == doctest::Approx(expected).epsilon(1e-11));
    CHECK(single[row] == doctest::Approx(expected).epsilon(2e-5));
    mean += nll[row] / static_cast<double>(nll.size());
  }
  CHECK(logistic_mixture_loss(p, targets).item() == doctest::Approx(mean).epsilon(1e-12));
}

TEST_CASE("gradients of the mixture of logistics pass the gradient check in every branch") {
  Tensor targets;
  const Tensor p = branch_rows(targets);
  auto loss = [&](const std::vector<Tensor>& in) { return logistic_mixture_loss(in[0], targets); };
  CHECK(gradcheck(loss, {p}, {.step = 1e-6}).max_relative_error < 1e-6);
}

TEST_CASE("clamped scales of a mixture of logistics have zero gradients") {
  const Tensor p = set_requires_grad(Tensor::from_vector<double>({0.3, 0.1, 0, 0, -9, -3}, {1, 6}));
  backward(logistic_mixture_loss(p, Tensor::from_vector<uint8_t>({128}, {1})));
  CHECK(gradient(p).to_vector()[4] == 0);
  CHECK(gradient(p).to_vector()[5] != 0);
}

TEST_CASE("the probabilities of the 256 levels of a mixture of logistics add up to one") {
  const Tensor one = Tensor::from_vector<double>({0.5, -0.2, 1.0, -0.9, 0.1, 0.95, -0.5, -0.8, -0.3}, {1, 9});
  const Tensor rows = one.view({256, 9}, {0, 1}).clone();
  std::vector<uint8_t> levels(256);
  for (int i = 0; i < 256; ++i) levels[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  double total = 0;
  for (const double nll : logistic_mixture_nll(rows, Tensor::from_vector<uint8_t>(levels, {256})).to_vector())
    total += std::exp(-nll);
  CHECK(total == doctest::Approx(1).epsilon(1e-9));
}

TEST_CASE("masked rows do not change the mean of the mixture of logistics and have zero gradients") {
  Tensor targets;
  const Tensor p = set_requires_grad(branch_rows(targets));
  const Tensor mask = Tensor::zeros({60}, DType::uint8);
  CHECK(logistic_mixture_loss(p, targets, {.row_mask = mask}).item() == 0);
  mask.data<uint8_t>()[7] = 1;
  const Tensor loss = logistic_mixture_loss(p, targets, {.row_mask = mask});
  CHECK(loss.item() == doctest::Approx(logistic_mixture_nll(p, targets).to_vector()[7]).epsilon(1e-14));
  backward(loss);
  for (int64_t i = 0; i < p.numel(); ++i)
    if (i / 12 != 7) REQUIRE(gradient(p).data<double>()[i] == 0);
}

TEST_CASE("extreme parameters of a mixture of logistics give finite losses and gradients in float32") {
  const Tensor p = set_requires_grad(
      Tensor::from_vector<float>({80, -80, 30, -30, 20, -30, 1, -1, -50, 60, -7, 0}, {2, 6}));
  const Tensor loss = logistic_mixture_loss(p, Tensor::from_vector<uint8_t>({3, 255}, {2}));
  CHECK(std::isfinite(loss.item()));
  backward(loss);
  for (const double g : gradient(p).to_vector()) CHECK(std::isfinite(g));
}

TEST_CASE("samples of a mixture of logistics have the distribution of the loss") {
  constexpr int64_t kRows = 200000;
  const Tensor one = Tensor::from_vector<double>({1.0, 0.0, -0.5, 0.4, -2.5, -3}, {1, 6});
  const Tensor rows = one.view({kRows, 6}, {0, 1}).clone();
  const Tensor out = Tensor::empty({kRows}, DType::uint8);
  sample_logistic_mixture(rows, RandomStream(1, "sample"), 0, out, SamplingScale::exp);
  std::vector<double> share(256);
  for (int64_t i = 0; i < kRows; ++i) share[out.data<uint8_t>()[i]] += 1.0 / kRows;
  for (int level = 0; level < 256; ++level) {
    const double expected = std::exp(-oracle({1.0, 0.0, -0.5, 0.4, -2.5, -3}, level));
    CHECK(std::abs(share[static_cast<size_t>(level)] - expected) < 5 * std::sqrt(expected / kRows) + 1e-5);
  }
  // The sample of a row depends on the index of the row in the random stream, not on the other rows.
  const Tensor again = Tensor::empty({10}, DType::uint8);
  sample_logistic_mixture(rows.view({10, 6}, {6, 1}), RandomStream(1, "sample"), 100, again,
                          SamplingScale::exp);
  for (int64_t i = 0; i < 10; ++i) CHECK(again.data<uint8_t>()[i] == out.data<uint8_t>()[100 + i]);
}

TEST_CASE("the paper's sampling scale is elu(log-scale) + 1.0001") {
  constexpr int64_t kRows = 100000;
  const double log_scale = -1.2;
  const Tensor rows = Tensor::from_vector<double>({0, 0, log_scale}, {1, 3}).view({kRows, 3}, {0, 1}).clone();
  const Tensor out = Tensor::empty({kRows}, DType::uint8);
  sample_logistic_mixture(rows, RandomStream(2, "sample"), 0, out);
  int64_t below = 0;
  for (int64_t i = 0; i < kRows; ++i)
    below += out.data<uint8_t>()[i] <= 63;  // levels up to 63 are values below about -0.502
  const double scale = std::expm1(log_scale) + 1.0001;
  CHECK(std::abs(below / double(kRows) - sigmoid((63.5 / 127.5 - 1) / scale)) < 0.006);
}

TEST_CASE("errors about arguments of the mixture of logistics contain the expected value") {
  const Tensor p = normal({4, 6});
  CHECK_THROWS_WITH(logistic_mixture_loss(normal({4, 5}), Tensor::zeros({4}, DType::uint8)),
                    "logistic_mixture_loss: parameters must be (rows, 3 * mixtures), not (4, 5)");
  CHECK_THROWS_WITH(logistic_mixture_loss(p, Tensor::zeros({3}, DType::uint8)),
                    "logistic_mixture_loss: targets (3,) do not match parameters (4, 6)");
  CHECK_THROWS_WITH(logistic_mixture_loss(p, Tensor::full({4}, 256, DType::int64)),
                    doctest::Contains("index 256 at element 0 is not in [0, 256)"));
  CHECK(logistic_mixture_loss(normal({0, 6}), Tensor::zeros({0}, DType::uint8)).item() == 0);
}
