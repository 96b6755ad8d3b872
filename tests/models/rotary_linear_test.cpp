// Tests of linear attention with rotary positions of the features.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"
#include "models/attention/attention.h"
#include "models/generation.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kBatch = 2, kLength = 70, kHeads = 2, kDim = 6, kValueDim = 5;

std::unique_ptr<Attention> make_rotary_linear_attention(const std::string& feature_map = "elu_plus_one") {
  const OptionValues options = find_attention_kind("linear").make_options(
      {{"rotation", std::string("features")}, {"feature_map", feature_map}});
  return make_attention("linear", options, {.heads = kHeads, .dim = kDim, .rotary = true});
}

double element(const Tensor& x, int64_t batch, int64_t token, int64_t head, int64_t feature) {
  const Shape& shape = x.shape();
  return x.data<double>()[((batch * shape[1] + token) * shape[2] + head) * shape[3] + feature];
}

double elu_plus_one(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

// Computes linear attention with rotary positions (RoFormer, equation 19) as a sum over pairs of tokens. The
// angles are computed from the differences of positions.
Tensor attend_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask) {
  const Tensor out = Tensor::zeros(v.shape(), DType::float64);
  double* result = out.data<double>();
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t i = 0; i < kLength; ++i)
      for (int64_t h = 0; h < kHeads; ++h, result += kValueDim) {
        const auto feature = [&](const Tensor& x, int64_t t, int64_t d) {
          return elu_plus_one(element(x, b, t, h, d));
        };
        const int64_t valid = mask.key_lengths.defined() ? mask.key_lengths.data<int64_t>()[b] : kLength;
        double denominator = 1e-6;
        for (int64_t j = 0; j < (mask.causal ? std::min(i + 1, valid) : valid); ++j) {
          double weight = 0;
          for (int64_t p = 0, half = kDim / 2; p < half; ++p) {
            const double angle =
                static_cast<double>(i - j) * std::pow(10000, -2.0 * static_cast<double>(p) / kDim);
            const double q1 = feature(q, i, p), q2 = feature(q, i, p + half), k1 = feature(k, j, p),
                         k2 = feature(k, j, p + half);
            weight += (q1 * k1 + q2 * k2) * std::cos(angle) + (q1 * k2 - q2 * k1) * std::sin(angle);
            denominator += q1 * k1 + q2 * k2;
          }
          for (int64_t m = 0; m < kValueDim; ++m) result[m] += weight * element(v, b, j, h, m);
        }
        for (int64_t m = 0; m < kValueDim; ++m) result[m] /= denominator;
      }
  return out;
}

Tensor make_queries() {
  return normal({kBatch, kLength, kHeads, kDim}, 1);
}
Tensor make_keys() {
  return normal({kBatch, kLength, kHeads, kDim}, 2);
}
Tensor make_values() {
  return normal({kBatch, kLength, kHeads, kValueDim}, 3);
}

}  // namespace

TEST_CASE("rotated features of linear attention equal the definition, with and without masks") {
  const auto attention = make_rotary_linear_attention();
  CHECK(attention->applies_rotary_positions());
  const Tensor q = make_queries(), k = make_keys(), v = make_values();
  const Tensor lengths = Tensor::from_vector<int64_t>({kLength - 3, 0}, {kBatch});
  for (const AttentionMask& mask :
       {AttentionMask{true, {}}, AttentionMask{false, {}}, AttentionMask{false, lengths}}) {
    const Tensor exact = attend_by_definition(q, k, v, mask);
    const auto attend = [&](DType dtype) {
      return attention->forward(q.to(dtype), k.to(dtype), v.to(dtype), mask, {}, "layer");
    };
    CHECK(max_difference(attend(DType::float64), exact) < 1e-12);
    CHECK(max_difference(attend(DType::float32), exact) < 1e-5);
    const Tensor rounded = attend(DType::bfloat16);
    CHECK(rounded.dtype() == DType::bfloat16);
    CHECK(max_difference(rounded.to(DType::float64), exact) < 0.05);
  }
}

TEST_CASE("rotated features of linear attention: gradients pass the gradient check for every feature map") {
  for (const std::string map : {"elu_plus_one", "squared_relu", "exponential"})
    for (const bool causal : {false, true}) {
      const auto attention = make_rotary_linear_attention(map);
      const auto attend = [&](const std::vector<Tensor>& in) {
        return attention->forward(in[0], in[1], in[2], {causal, {}}, {}, "layer");
      };
      const GradcheckResult result =
          gradcheck(attend,
                    {normal({1, 5, kHeads, kDim}, 4), normal({1, 5, kHeads, kDim}, 5),
                     normal({1, 5, kHeads, kValueDim}, 6)},
                    {.step = 1e-4});
      CHECK(result.message == "");
      CHECK(result.max_relative_error < 1e-5);
    }
}

TEST_CASE("rotated features of linear attention: steps equal the causal form, also after a reset") {
  const auto attention = make_rotary_linear_attention();
  const auto state = attention->make_state({.batch = kBatch,
                                            .heads = kHeads,
                                            .dim = kDim,
                                            .value_dim = kValueDim,
                                            .capacity = kLength,
                                            .dtype = DType::float64,
                                            .device = kCpu});
  const Tensor q = make_queries(), k = make_keys(), v = make_values();
  const Tensor exact = attention->forward(q, k, v, {true, {}}, {}, "layer");
  for (int sequence = 0; sequence < 2; ++sequence) {
    state->reset();
    for (int64_t t = 0; t < kLength; ++t) {
      const Tensor out = Tensor::empty({kBatch, kHeads, kValueDim}, DType::float64);
      const auto token = [&](const Tensor& x) { return unbind(x, 1)[static_cast<size_t>(t)]; };
      attention->step(token(q), token(k), token(v), *state, out);
      REQUIRE(max_difference(out, token(exact)) < 1e-12);
    }
  }
}

TEST_CASE("rotated features of linear attention: decoding of a model equals its parallel form") {
  AutoregressiveModelOptions options = small_options("linear");
  options.encoder.rotary = true;
  options.position_kind = PositionKind::none;
  options.encoder.attention[0].options.set("rotation", std::string("features"));
  for (const Device device : list_devices()) {
    AutoregressiveModel model(options);
    model.initialize(4);
    model.convert(device.is_cpu() ? DType::float64 : DType::float32);
    model.move(device);
    const Tensor prefix = random_tokens(3, 2, 256).to(device);
    const Tensor recurrent = generate(model, prefix, 12, {.seed = 9});
    const Tensor recompute = generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9});
    CHECK(recurrent.to(kCpu).to_vector() == recompute.to(kCpu).to_vector());
  }
  CHECK_THROWS_WITH_AS(
      make_attention("linear", options.encoder.attention[0].options, {.dim = 5, .rotary = true}),
      doctest::Contains("rotation: \"features\" needs heads of even width, not 5"), OptionError);
  options.encoder.rotary = false;
  CHECK_THROWS_WITH_AS(AutoregressiveModel{options},
                       doctest::Contains("rotation: \"features\" needs rotary positions"), OptionError);
}
