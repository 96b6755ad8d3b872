// Tests of learned feature maps, and of attention with a softmax window and a linear part.
#include <doctest/doctest.h>

#include <cmath>

#include "models/attention/kinds/linear/learned_features.h"
#include "models/layers/option_error.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kExamples = 2, kTokens = 11, kLayerHeads = 2, kLayerWidth = 4;

using WindowOptions = std::vector<std::pair<std::string, OptionValue>>;

std::unique_ptr<Attention> make_attention_with(const std::string& kind, const WindowOptions& options) {
  auto attention = make_attention(kind, find_attention_kind(kind).make_options(options),
                                  {.heads = kLayerHeads, .dim = kLayerWidth});
  attention->initialize(1);
  attention->convert(DType::float64);
  // Identity maps and equal parameters of all heads would hide errors.
  int salt = 10;
  for (const auto& [name, parameter] : attention->parameters())
    detach(parameter).add_scaled(normal(parameter.shape(), salt++), 0.3);
  return attention;
}

Tensor attend_with(const Attention& attention, const Tensor& q, const Tensor& k, const Tensor& v,
                   const AttentionMask& mask = {}) {
  return attention.forward(q, k, v, mask, {}, "layers.0");
}

double element_at(const Tensor& x, int64_t b, int64_t t, int64_t h, int64_t d) {
  return x.data<double>()[((b * x.size(1) + t) * x.size(2) + h) * x.size(3) + d];
}

const Tensor& find_parameter(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [found, tensor] : tensors)
    if (found == name) return tensor;
  throw std::invalid_argument("no parameter " + name);
}

// Returns φ(x) of one row by the definition.
std::vector<double> map_row(const NamedTensors& parameters, const std::string& prefix, const Tensor& x,
                            int64_t b, int64_t t, int64_t h) {
  const Tensor& weight = find_parameter(parameters, prefix + ".weight");
  const int64_t features = weight.size(1);
  std::vector<double> y(static_cast<size_t>(features), 0.0);
  for (int64_t f = 0; f < features; ++f)
    for (int64_t d = 0; d < kLayerWidth; ++d)
      y[static_cast<size_t>(f)] +=
          weight.data<double>()[(h * features + f) * kLayerWidth + d] * element_at(x, b, t, h, d);
  std::vector<double> result;
  for (const double sign : {1.0, -1.0}) {
    double total = 0;
    for (const double value : y) total += std::exp(sign * value);
    for (const double value : y) result.push_back(std::exp(sign * value) / total);
  }
  return result;
}

// Returns window-linear attention as sums over pairs of tokens.
Tensor attend_to_window(const Attention& attention, const Tensor& q, const Tensor& k, const Tensor& v,
                        int64_t window, const AttentionMask& mask) {
  const NamedTensors parameters = attention.parameters();
  const Tensor out = Tensor::zeros(v.shape(), DType::float64);
  for (int64_t b = 0; b < kExamples; ++b)
    for (int64_t i = 0; i < kTokens; ++i)
      for (int64_t h = 0; h < kLayerHeads; ++h) {
        const double share =
            1 / (1 + std::exp(-find_parameter(parameters, "window_share").data<double>()[h]));
        const int64_t valid = mask.key_lengths.defined() ? mask.key_lengths.data<int64_t>()[b] : kTokens;
        const std::vector<double> query = map_row(parameters, "query_features", q, b, i, h);
        double near_total = 0, far_total = 0;
        std::vector<double> near(kLayerWidth, 0.0), far(kLayerWidth, 0.0);
        for (int64_t j = 0; j < (mask.causal ? std::min(i + 1, valid) : valid); ++j) {
          const bool is_near = std::abs(i - j) < window;
          double weight = 0;
          if (is_near) {
            for (int64_t d = 0; d < kLayerWidth; ++d)
              weight += element_at(q, b, i, h, d) * element_at(k, b, j, h, d);
            weight = std::exp(weight / std::sqrt(static_cast<double>(kLayerWidth)));
          } else {
            const std::vector<double> key = map_row(parameters, "key_features", k, b, j, h);
            for (size_t f = 0; f < key.size(); ++f) weight += query[f] * key[f];
          }
          (is_near ? near_total : far_total) += weight;
          for (int64_t d = 0; d < kLayerWidth; ++d)
            (is_near ? near : far)[static_cast<size_t>(d)] += weight * element_at(v, b, j, h, d);
        }
        if (near_total == 0) continue;
        for (int64_t d = 0; d < kLayerWidth; ++d)
          out.data<double>()[((b * kTokens + i) * kLayerHeads + h) * kLayerWidth + d] =
              (share * near[static_cast<size_t>(d)] / near_total + far[static_cast<size_t>(d)]) /
              (share + far_total);
      }
  return out;
}

const Tensor kQueryRows = normal({kExamples, kTokens, kLayerHeads, kLayerWidth}, 1),
             kKeyRows = normal({kExamples, kTokens, kLayerHeads, kLayerWidth}, 2),
             kValueRows = normal({kExamples, kTokens, kLayerHeads, kLayerWidth}, 3);

}  // namespace

TEST_CASE("window-linear: the result equals the definition, with and without masks") {
  for (const int64_t window : {1, 3, 10}) {
    CAPTURE(window);
    const auto attention =
        make_attention_with("window-linear", {{"window", window}, {"features", int64_t{3}}});
    for (const bool causal : {true, false}) {
      AttentionMask mask{.causal = causal, .key_lengths = {}};
      CAPTURE(causal);
      CHECK(max_difference(attend_with(*attention, kQueryRows, kKeyRows, kValueRows, mask),
                           attend_to_window(*attention, kQueryRows, kKeyRows, kValueRows, window, mask)) <
            1e-12);
    }
    const Tensor lengths = Tensor::from_vector<int64_t>({kTokens, 7}, {kExamples});
    const AttentionMask mask{.causal = true, .key_lengths = lengths};
    // Rows after the length of a sequence have no meaning.
    const auto valid = [](const Tensor& x) { return slice(slice(x, 0, 1, 2), 1, 0, 7); };
    CHECK(max_difference(
              valid(attend_with(*attention, kQueryRows, kKeyRows, kValueRows, mask)),
              valid(attend_to_window(*attention, kQueryRows, kKeyRows, kValueRows, window, mask))) < 1e-12);
  }
}

TEST_CASE("window-linear: a window of all tokens is softmax attention") {
  const auto attention = make_attention_with("window-linear", {{"window", kTokens}});
  const auto softmax = make_attention_with("softmax", {});
  CHECK(max_difference(attend_with(*attention, kQueryRows, kKeyRows, kValueRows),
                       attend_with(*softmax, kQueryRows, kKeyRows, kValueRows)) < 1e-14);
}

TEST_CASE("linear attention with learned features equals the definition") {
  const auto hedgehog =
      make_attention_with("linear", {{"feature_map", std::string("hedgehog")}, {"features", int64_t{3}}});
  const NamedTensors parameters = hedgehog->parameters();
  const Tensor out = attend_with(*hedgehog, kQueryRows, kKeyRows, kValueRows);
  for (int64_t h = 0; h < kLayerHeads; ++h) {
    const std::vector<double> query = map_row(parameters, "query_features", kQueryRows, 1, 6, h);
    double total = 1e-6, sum = 0;
    for (int64_t j = 0; j <= 6; ++j) {
      const std::vector<double> key = map_row(parameters, "key_features", kKeyRows, 1, j, h);
      double weight = 0;
      for (size_t f = 0; f < key.size(); ++f) weight += query[f] * key[f];
      total += weight;
      sum += weight * element_at(kValueRows, 1, j, h, 2);
    }
    CHECK(element_at(out, 1, 6, h, 2) == doctest::Approx(sum / total).epsilon(1e-12));
  }
}

TEST_CASE("the initial W of hedgehog is rows of the identity, and half as many as the width of a head") {
  const LearnedFeatures map(LearnedFeatureMap::hedgehog, 1, 6, 0);
  map.initialize(1);
  const Tensor weight = detach(map.parameters()[0].second);
  CHECK(weight.shape() == Shape{1, 3, 6});
  CHECK(map.width() == 6);
  for (int64_t i = 0; i < weight.numel(); ++i)
    CHECK(weight.to(DType::float64).data<double>()[i] == (i / 6 == i % 6 ? 1 : 0));
}

TEST_CASE("learned feature maps rotate inputs, not features") {
  CHECK_THROWS_WITH_AS(make_attention_with("linear", {{"feature_map", std::string("t2r")},
                                                      {"rotation", std::string("features")}}),
                       doctest::Contains("learned feature map"), OptionError);
}
