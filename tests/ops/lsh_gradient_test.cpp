#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"
#include "ops/reference/lsh_attention.h"
#include "tests/ops/lsh_cases.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct QvGradients {
  Tensor out, q, v;
};

template <class Attention>
QvGradients differentiate(Attention attention, const LshCase& c, const Tensor& cotangent) {
  const Tensor q = set_requires_grad(c.q.clone()), v = set_requires_grad(c.v.clone());
  const Tensor out = attention(q, v, c.buckets, c.options);
  backward(out, cotangent);
  return {detach(out), gradient(q), gradient(v)};
}

double error_of_gradients(const LshCase& c, DType dtype = DType::float64) {
  const Tensor cotangent = normal(c.v.shape(), 77);
  const QvGradients exact = differentiate(lsh_attention_reference, c, cotangent);
  const LshCase converted{c.options, c.q.to(dtype), c.v.to(dtype), c.buckets};
  const QvGradients got = differentiate(lsh_attention, converted, cotangent.to(dtype));
  return std::max(
      {max_difference(got.out, exact.out), max_difference(got.q, exact.q), max_difference(got.v, exact.v)});
}

}  // namespace

TEST_CASE("lsh attention: values and gradients equal one softmax over all rounds, for random options") {
  double worst = 0;
  for (uint64_t salt = 0; salt < 300; ++salt) {
    const LshCase c = random_lsh_case(salt);
    CAPTURE(salt);
    CAPTURE(describe(c));
    const double error = error_of_gradients(c);
    REQUIRE(error < 1e-10);
    worst = std::max(worst, error);
  }
  MESSAGE("worst difference ", worst);
}

TEST_CASE(
    "lsh attention: every wrap, duplicates, mask and combination is correct over many chunks and segments") {
  for (const auto wrap : {LshOptions::Wrap::none, LshOptions::Wrap::round, LshOptions::Wrap::global})
    for (const auto duplicates : {LshOptions::Duplicates::none, LshOptions::Duplicates::exact})
      for (const auto combine : {LshOptions::Combine::logsumexp, LshOptions::Combine::mean})
        for (const bool across : {false, true})
          for (const bool causal : {false, true}) {
            LshCase c;
            c.options = {.rounds = 3,
                         .chunk_length = 5,
                         .wrap = wrap,
                         .duplicates = duplicates,
                         .across_buckets = across,
                         .combine = combine,
                         .causal = causal,
                         .key_lengths = Tensor::from_vector<int64_t>({133, 110}, {2})};
            c.q = normal({2, 133, 1, 9}, 1);
            c.v = normal({2, 133, 1, 17}, 2);
            c.buckets = random_buckets(2, 1, 3, 133, 12, 3);
            CAPTURE(describe(c));
            CHECK(error_of_gradients(c) < 1e-10);
            CHECK(error_of_gradients(c, DType::float32) < 1e-4);
          }
}

TEST_CASE("lsh attention: chunks may be smaller than a block of queries, as large or larger") {
  for (const int64_t chunk : {6, 16, 29, 37, 64, 97, 200})
    for (const bool across : {false, true}) {
      LshCase c;
      c.options = {.rounds = 2, .chunk_length = chunk, .across_buckets = across, .causal = across};
      c.q = normal({1, 301, 2, 33}, 1);
      c.v = normal({1, 301, 2, 16}, 2);
      c.buckets = random_buckets(1, 2, 2, 301, std::max<int64_t>(800 / chunk, 2), 3);
      CAPTURE(describe(c));
      CHECK(error_of_gradients(c) < 1e-10);
    }
}

TEST_CASE("lsh attention: gradients pass the gradient check with fixed buckets") {
  for (const auto combine : {LshOptions::Combine::logsumexp, LshOptions::Combine::mean}) {
    const LshOptions options{.rounds = 3, .chunk_length = 4, .combine = combine, .causal = true};
    const Tensor buckets = random_buckets(2, 2, 3, 13, 5, 1);
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Tensor>& in) { return lsh_attention(in[0], in[1], buckets, options); },
        {normal({2, 13, 2, 3}, 1), normal({2, 13, 2, 4}, 2)}, {.step = 1e-4});
    CHECK(result.message == "");
    CHECK(result.max_relative_error < 1e-6);
  }
}

TEST_CASE(
    "lsh attention: causal results have gradients for earlier positions, and none for later positions") {
  for (const auto wrap : {LshOptions::Wrap::none, LshOptions::Wrap::round, LshOptions::Wrap::global})
    for (const bool across : {false, true}) {
      const LshOptions options{
          .rounds = 2, .chunk_length = 6, .wrap = wrap, .across_buckets = across, .causal = true};
      const Tensor buckets = random_buckets(1, 1, 2, 40, 6, 4);
      double earlier = 0;
      for (int64_t s = 0; s < 40; ++s) {
        const Tensor q = set_requires_grad(normal({1, 40, 1, 5}, 1)),
                     v = set_requires_grad(normal({1, 40, 1, 5}, 2));
        const Tensor out = lsh_attention(q, v, buckets, options);
        const Tensor cotangent = Tensor::zeros(out.shape(), DType::float64);
        for (int64_t m = 0; m < 5; ++m) cotangent.data<double>()[s * 5 + m] = 1 + static_cast<double>(m);
        backward(out, cotangent);
        for (const Tensor& g : {gradient(q), gradient(v)})
          for (int64_t i = 0; i < 200; ++i) {
            if (i / 5 > s) REQUIRE(g.data<double>()[i] == 0);
            if (i / 5 < s) earlier += std::abs(g.data<double>()[i]);
          }
      }
      CHECK(earlier > 1);
    }
}

TEST_CASE("lsh attention: results are not NaN if all positions are masked or all scores are extreme") {
  const LshOptions options{.rounds = 2,
                           .chunk_length = 4,
                           .causal = true,
                           .key_lengths = Tensor::from_vector<int64_t>({0, 7}, {2})};
  const Tensor buckets = random_buckets(2, 1, 2, 21, 4, 1);
  for (const double size : {0.0, 1.0, 1e4, 1e15}) {
    const Tensor q = normal({2, 21, 1, 3}, 1, DType::float32), v = normal({2, 21, 1, 2}, 2, DType::float32);
    for (int64_t i = 0; i < q.numel(); ++i) q.data<float>()[i] *= static_cast<float>(size);
    for (int64_t i = 0; i < 21 * 3; ++i)
      q.data<float>()[i] = NAN;  // all positions of this example are masked
    for (int64_t i = 28 * 2; i < 42 * 2; ++i) v.data<float>()[i] = INFINITY;
    set_requires_grad(q);
    set_requires_grad(v);
    const Tensor out = lsh_attention(q, v, buckets, options);
    backward(out, Tensor::full(out.shape(), 1));
    for (const Tensor& x : {out, gradient(q), gradient(v)}) {
      const std::vector<double> values = x.to_vector();
      const size_t width = values.size() / 42;
      for (size_t i = 0; i < values.size(); ++i) {
        REQUIRE(std::isfinite(values[i]));
        const bool counts = i / width >= 21 && i / width < 28;
        if (!counts) REQUIRE(values[i] == 0);
      }
    }
  }
}
