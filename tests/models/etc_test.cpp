// Tests that compare the attention of ETC with a direct computation that stores all scores.
// tests/train/golden_test.cpp compares the attention of ETC with PyTorch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "models/attention/attention.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reference/softmax_attention.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kEtcHeads = 2, kEtcDim = 3, kMaxLength = 16;

struct EtcCase {
  int64_t globals = 2, radius = 3, max_distance = 2;
  bool segment_mask = false;
};

std::unique_ptr<Attention> make_etc(const EtcCase& c) {
  auto attention = make_attention("etc",
                                  find_attention_kind("etc").make_options({{"global_tokens", c.globals},
                                                                           {"radius", c.radius},
                                                                           {"max_distance", c.max_distance},
                                                                           {"segment_mask", c.segment_mask}}),
                                  {.heads = kEtcHeads, .dim = kEtcDim, .max_length = kMaxLength});
  attention->initialize(1);
  attention->convert(DType::float64);
  uint64_t element = 0;
  const RandomStream stream(1, "labels");
  for (const auto& [name, tensor] : attention->parameters())
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<double>()[i] = stream.normal(element++);
  return attention;
}

Tensor labels_of(const Attention& attention, const std::string& name) {
  for (const auto& [found, tensor] : attention.parameters())
    if (found == name) return tensor;
  FAIL("no parameter " << name);
  return {};
}

// Returns the learned label (heads, dim) for the pair of query i and key j. Returns nullptr if the query does
// not attend to the key.
const double* label_of(const Attention& attention, const EtcCase& c, int64_t i, int64_t j) {
  const int64_t row = kEtcHeads * kEtcDim, segment = (kMaxLength - 1) / c.globals;
  const bool global_query = i < c.globals, global_key = j < c.globals;
  if (global_query == global_key) {
    if (!global_query && std::abs(i - j) > c.radius) return nullptr;
    const int64_t distance = std::clamp(j - i, -c.max_distance, c.max_distance);
    return labels_of(attention, global_query ? "global_labels" : "long_labels").data<double>() +
           (distance + c.max_distance) * row;
  }
  const int64_t global = std::min(i, j), token = std::max(i, j) - c.globals;
  const bool same = std::min(token / segment, c.globals - 1) == global;
  if (c.segment_mask && global_query && !same) return nullptr;
  return labels_of(attention, "segment_labels").data<double>() +
         ((global_query ? 0 : 2) + (same ? 1 : 0)) * row;
}

// Returns the result of ETC attention for one sequence, computed from the definition with all scores in
// memory.
Tensor direct_etc(const Attention& attention, const EtcCase& c, const Tensor& q, const Tensor& k,
                  const Tensor& v) {
  const int64_t length = q.size(1);
  const Tensor scores = Tensor::full({1, kEtcHeads, length, length}, -INFINITY, DType::float64);
  double* score = scores.data<double>();
  for (int64_t h = 0; h < kEtcHeads; ++h)
    for (int64_t i = 0; i < length; ++i)
      for (int64_t j = 0; j < length; ++j, ++score) {
        const double* const label = label_of(attention, c, i, j);
        if (!label) continue;
        double sum = 0;
        for (int64_t d = 0; d < kEtcDim; ++d)
          sum += q.data<double>()[(i * kEtcHeads + h) * kEtcDim + d] *
                 (k.data<double>()[(j * kEtcHeads + h) * kEtcDim + d] + label[h * kEtcDim + d]);
        *score = sum / std::sqrt(double{kEtcDim});
      }
  const Tensor values = permute(v, {0, 2, 1, 3});
  return contiguous(permute(matmul(softmax(scores), values), {0, 2, 1, 3}));
}

Tensor etc_input(int64_t length, int salt) {
  return normal({1, length, kEtcHeads, kEtcDim}, salt);
}

const AttentionMask kNotCausal{.causal = false, .key_lengths = {}};

}  // namespace

TEST_CASE("etc: the result equals dense attention with labels, at lengths that no block divides") {
  for (const EtcCase& c : {EtcCase{}, EtcCase{.globals = 1, .radius = 1, .max_distance = 0},
                           EtcCase{.globals = 3, .radius = 2, .max_distance = 4, .segment_mask = true},
                           EtcCase{.globals = 2, .radius = 14, .max_distance = 12}})
    for (const int64_t length : {4, 5, 11, 16}) {
      CAPTURE(c.radius);
      CAPTURE(length);
      const auto attention = make_etc(c);
      const Tensor q = etc_input(length, 1), k = etc_input(length, 2), v = etc_input(length, 3);
      const Tensor out = attention->forward(q, k, v, kNotCausal, {}, "layers.0");
      CHECK(max_difference(out, direct_etc(*attention, c, q, k, v)) < 1e-12);
    }
}

TEST_CASE("etc: without labels and with a radius of the length, the result is softmax attention") {
  const auto attention = make_etc({.globals = 2, .radius = 16, .max_distance = 12});
  for (const auto& [name, tensor] : attention->parameters()) tensor.fill(0);
  const Tensor q = normal({2, 13, kEtcHeads, kEtcDim}, 1), k = normal({2, 13, kEtcHeads, kEtcDim}, 2),
               v = normal({2, 13, kEtcHeads, kEtcDim}, 3);
  for (const bool masked : {false, true}) {
    const Tensor lengths = masked ? Tensor::from_vector<int64_t>({13, 6}, {2}) : Tensor();
    const AttentionMask mask{.causal = false, .key_lengths = lengths};
    CHECK(max_difference(attention->forward(q, k, v, mask, {}, "layers.0"),
                         softmax_attention_reference(q, k, v, {.key_lengths = lengths})) < 1e-12);
  }
}

TEST_CASE("etc: masked keys have no effect, and a sequence may contain global tokens only") {
  const auto attention = make_etc({});
  const Tensor q = etc_input(11, 1), k = etc_input(11, 2), v = etc_input(11, 3);
  for (const int64_t length : {1, 2, 3, 7}) {
    CAPTURE(length);
    const auto part = [&](const Tensor& x) { return slice(x, 1, 0, length); };
    const AttentionMask mask{.causal = false, .key_lengths = Tensor::from_vector<int64_t>({length}, {1})};
    const Tensor padded = attention->forward(q, k, v, mask, {}, "layers.0");
    const Tensor truncated = attention->forward(part(q), part(k), part(v), kNotCausal, {}, "layers.0");
    CHECK(max_difference(part(padded), truncated) < 1e-12);
  }
}

TEST_CASE("etc: invalid options, lengths and causal masks are errors") {
  const auto check_length = [](const EtcCase& c, int64_t length) {
    check_attention_length(
        "etc", find_attention_kind("etc").make_options({{"global_tokens", c.globals}, {"radius", c.radius}}),
        length);
  };
  CHECK_THROWS_WITH_AS(check_length({.globals = 9, .radius = 2}, 8),
                       doctest::Contains("attention_options.global_tokens"), OptionError);
  CHECK_THROWS_WITH_AS(check_length({.globals = 2, .radius = 9}, 8),
                       doctest::Contains("attention_options.radius"), OptionError);
  const auto attention = make_etc({});
  const Tensor x = etc_input(5, 1);
  CHECK_THROWS_WITH_AS(attention->forward(x, x, x, {}, {}, "layers.0"),
                       "etc: global tokens attend to all tokens, so there is no causal form", ShapeError);
  CHECK_THROWS_WITH_AS(make_attention("etc", find_attention_kind("etc").default_options()),
                       "etc: the segments of the global tokens need a maximum length", std::invalid_argument);
}
