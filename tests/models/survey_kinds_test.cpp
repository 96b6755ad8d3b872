// Tests of attention kinds that have learned parameters and are described in "Efficient Transformers: A
// Survey" (Tay et al. 2020). The tests compare the results of attention with direct computations. With
// options that make an attention kind equivalent to softmax attention, the tests compare the results with
// softmax attention.
#include <doctest/doctest.h>

#include <cmath>

#include "models/encoder/encoder.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reference/softmax_attention.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/attention/kind_tests.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using NamedOptions = std::vector<std::pair<std::string, OptionValue>>;
using Texts = std::vector<std::string>;

constexpr int64_t kSurveyLength = 9, kHeadCount = 2, kHeadWidth = 4;
const Tensor kSurveyQueries = normal({2, kSurveyLength, kHeadCount, kHeadWidth}, 1),
             kSurveyKeys = normal({2, kSurveyLength, kHeadCount, kHeadWidth}, 2),
             kSurveyValues = normal({2, kSurveyLength, kHeadCount, kHeadWidth}, 3);

// Creates attention of this kind for sequences of up to kSurveyLength tokens, with float64 parameters.
std::unique_ptr<Attention> make_survey_kind(const std::string& kind, const NamedOptions& options) {
  auto attention = make_attention(kind, find_attention_kind(kind).make_options(options),
                                  {.heads = kHeadCount, .dim = kHeadWidth, .max_length = kSurveyLength});
  attention->initialize(1);
  attention->convert(DType::float64);
  return attention;
}

Tensor parameter_of(const Attention& attention, const std::string& name) {
  for (const auto& [found, tensor] : attention.saved_tensors())
    if (found == name) return tensor;
  FAIL("no parameter " << name);
  return {};
}

// Sets element (a, b, c) of the three-dimensional parameter `name` to value(a, b, c).
template <class F>
void fill_by_index(const Attention& attention, const std::string& name, F&& value) {
  const Tensor tensor = parameter_of(attention, name);
  REQUIRE(tensor.rank() == 3);
  double* element = tensor.data<double>();
  for (int64_t a = 0; a < tensor.size(0); ++a)
    for (int64_t b = 0; b < tensor.size(1); ++b)
      for (int64_t c = 0; c < tensor.size(2); ++c) *element++ = value(a, b, c);
}

Tensor attend_with(const Attention& attention, const AttentionMask& mask) {
  return attention.forward(kSurveyQueries, kSurveyKeys, kSurveyValues, mask, {}, "layers.0");
}

const AttentionMask kCausal{.causal = true, .key_lengths = {}}, kNoMask{.causal = false, .key_lengths = {}};

AttentionMask two_lengths() {
  return {.causal = false, .key_lengths = Tensor::from_vector<int64_t>({kSurveyLength, 5}, {2})};
}
std::vector<AttentionMask> all_masks() {
  return {kCausal, kNoMask, two_lengths()};
}

Tensor softmax_result(const AttentionMask& mask) {
  return softmax_attention_reference(kSurveyQueries, kSurveyKeys, kSurveyValues,
                                     {.causal = mask.causal, .key_lengths = mask.key_lengths});
}

double identity(int64_t, int64_t row, int64_t column) {
  return row == column ? 1 : 0;
}

// Computes attention for the second sequence of the batch in two ways. First, the sequence has padding, and a
// length mask limits it to 5 tokens. Second, the padding is removed, and there is no mask. Returns the
// largest difference between the two results.
double truncation_error(const Attention& attention) {
  const auto part = [](const Tensor& x) { return slice(slice(x, 0, 1, 2), 1, 0, 5); };
  const Tensor whole = attend_with(attention, two_lengths());
  const Tensor truncated = attention.forward(part(kSurveyQueries), part(kSurveyKeys), part(kSurveyValues),
                                             kNoMask, {}, "layers.0");
  return max_difference(part(whole), truncated);
}

void clear_parameter(const Attention& attention, const std::string& name) {
  parameter_of(attention, name).fill(0);
}

// Returns for each query the mean of the values of all keys that are not masked.
Tensor mean_of_visible(const AttentionMask& mask) {
  return softmax_attention_reference(Tensor::zeros_like(kSurveyQueries), kSurveyKeys, kSurveyValues,
                                     {.causal = mask.causal, .key_lengths = mask.key_lengths});
}

}  // namespace

TEST_CASE("linformer: identity projections give softmax attention") {
  const auto linformer = make_survey_kind("linformer", {{"rank", kSurveyLength}});
  fill_by_index(*linformer, "key_projection", identity);
  fill_by_index(*linformer, "value_projection", identity);
  CHECK(max_difference(attend_with(*linformer, kNoMask), softmax_result(kNoMask)) < 1e-12);
}

TEST_CASE("linformer: the result is softmax(q (E k)^T / sqrt(dim)) F v for every head") {
  for (const std::string sharing : {"none", "headwise", "key-value", "layerwise"}) {
    CAPTURE(sharing);
    const auto linformer = make_survey_kind("linformer", {{"rank", int64_t{3}}, {"sharing", sharing}});
    const bool one_map = sharing == "key-value" || sharing == "layerwise";
    const Tensor e = parameter_of(*linformer, one_map ? "projection" : "key_projection");
    const Tensor f = one_map ? e : parameter_of(*linformer, "value_projection");
    REQUIRE(e.shape() == Shape{sharing == "none" ? kHeadCount : 1, 3, kSurveyLength});
    const Tensor result = attend_with(*linformer, kNoMask);
    for (int64_t h = 0; h < kHeadCount; ++h) {
      const auto head = [&](const Tensor& x) {
        return reshape(slice(x, 2, h, h + 1), {2, kSurveyLength, kHeadWidth});
      };
      const auto map = [&](const Tensor& x) {
        return slice(x, 0, sharing == "none" ? h : 0, sharing == "none" ? h + 1 : 1);
      };
      const Tensor scores =
          mul(matmul(head(kSurveyQueries), matmul(map(e), head(kSurveyKeys)), {.transpose_b = true}),
              1 / std::sqrt(double{kHeadWidth}));
      const Tensor expected = matmul(softmax(scores), matmul(map(f), head(kSurveyValues)));
      CHECK(max_difference(head(result), expected) < 1e-12);
    }
    CHECK(truncation_error(*linformer) < 1e-12);
  }
}

TEST_CASE("linformer: layerwise projections are one parameter of the model") {
  const auto projections = [](const std::string& sharing) {
    EncoderOptions options = small_encoder("linformer");
    options.layers = 3;
    options.attention.front().options.set("sharing", sharing);
    Texts names;
    for (const auto& [name, tensor] : Encoder(options).parameters())
      if (name.find("inner_attention") != std::string::npos) names.push_back(name);
    return names;
  };
  CHECK(projections("layerwise") == Texts{"layers.0.attention.inner_attention.projection"});
  CHECK(projections("key-value").size() == 3);
  CHECK(projections("headwise").size() == 6);
}

TEST_CASE("linformer: invalid ranks, lengths and causal masks are errors") {
  CHECK_THROWS_WITH_AS(
      make_survey_kind("linformer", {{"rank", int64_t{10}}}),
      "attention_options.rank: expected at most the maximum length of the sequences, 9, got 10", OptionError);
  CHECK_THROWS_WITH_AS(make_attention("linformer", find_attention_kind("linformer").default_options()),
                       "linformer: the projections over the length need a maximum length",
                       std::invalid_argument);
  const auto linformer = make_survey_kind("linformer", {{"rank", int64_t{3}}});
  CHECK_THROWS_WITH_AS(attend_with(*linformer, kCausal),
                       "linformer: each compressed key contains later tokens, so there is no causal form",
                       ShapeError);
  const Tensor longer = normal({1, kSurveyLength + 1, kHeadCount, kHeadWidth}, 4);
  CHECK_THROWS_WITH_AS(linformer->forward(longer, longer, longer, kNoMask, {}, "layers.0"),
                       "linformer: sequences of 10 tokens are longer than the maximum, 9", ShapeError);
}

TEST_CASE("synthesizer: scores of zero give the mean of the values that a query attends to") {
  const std::vector<std::pair<Texts, Texts>> cases = {
      {{"random"}, {"random"}},
      {{"factorized-random"}, {"random_rows"}},
      {{"dense"}, {"dense"}},
      {{"factorized-dense"}, {"dense_rows"}},
      {{"dense", "random", "factorized-dense"}, {"dense", "random", "dense_columns"}}};
  for (const auto& [terms, zeros] : cases)
    for (const AttentionMask& mask : all_masks()) {
      const std::string& first_term = terms.front();
      CAPTURE(first_term);
      CAPTURE(mask.causal);
      const auto synthesizer = make_survey_kind("synthesizer", {{"terms", terms}});
      CHECK(max_difference(attend_with(*synthesizer, mask), mean_of_visible(mask)) > 1e-3);
      for (const std::string& name : zeros) clear_parameter(*synthesizer, name);
      CHECK(max_difference(attend_with(*synthesizer, mask), mean_of_visible(mask)) < 1e-12);
    }
}

TEST_CASE("synthesizer: dot products with other scores of zero give softmax attention") {
  for (const AttentionMask& mask : all_masks())
    for (const Texts& terms :
         {Texts{"dot-product"}, Texts{"random", "dot-product"}, Texts{"factorized-random", "dot-product"}}) {
      const auto synthesizer = make_survey_kind("synthesizer", {{"terms", terms}});
      for (const auto& [name, tensor] : synthesizer->saved_tensors()) tensor.fill(0);
      CHECK(max_difference(attend_with(*synthesizer, mask), softmax_result(mask)) < 1e-12);
    }
}

TEST_CASE("synthesizer: each term equals the term `random` with the scores of the definition") {
  const auto random = make_survey_kind("synthesizer", {{"terms", Texts{"random"}}});
  const auto factorized =
      make_survey_kind("synthesizer", {{"terms", Texts{"factorized-random"}}, {"rank", int64_t{3}}});
  const double* const rows = parameter_of(*factorized, "random_rows").data<double>();
  const double* const columns = parameter_of(*factorized, "random_columns").data<double>();
  fill_by_index(*random, "random", [&](int64_t h, int64_t i, int64_t j) {
    double score = 0;
    for (int64_t r = 0; r < 3; ++r)
      score += rows[(i * kHeadCount + h) * 3 + r] * columns[(j * kHeadCount + h) * 3 + r];
    return score;
  });
  for (const AttentionMask& mask : all_masks())
    CHECK(max_difference(attend_with(*random, mask), attend_with(*factorized, mask)) < 1e-12);

  // Sets the scores of `random` to score(head, query, key), and compares the result of `random` with the
  // result of `dense`. Only the first sequence is compared, because `score` uses the queries of the first
  // sequence.
  const auto compare_dense = [&](const Attention& dense, const auto& score) {
    fill_by_index(*random, "random", score);
    const auto first = [](const Tensor& x) { return slice(x, 0, 0, 1); };
    for (const AttentionMask& mask : {kCausal, kNoMask})
      CHECK(max_difference(first(attend_with(*random, mask)), first(attend_with(dense, mask))) < 1e-12);
  };
  const auto query = [](int64_t h, int64_t i, int64_t d) {
    return kSurveyQueries.data<double>()[(i * kHeadCount + h) * kHeadWidth + d];
  };
  const auto dense = make_survey_kind("synthesizer", {{"terms", Texts{"dense"}}});
  const double* const weights = parameter_of(*dense, "dense").data<double>();
  compare_dense(*dense, [&](int64_t h, int64_t i, int64_t j) {
    double score = 0;
    for (int64_t d = 0; d < kHeadWidth; ++d)
      score += std::max(query(h, i, d), 0.0) * weights[(j * kHeadCount + h) * kHeadWidth + d];
    return score;
  });
  const auto tiled = make_survey_kind("synthesizer", {{"terms", Texts{"factorized-dense"}}});
  const Tensor a = parameter_of(*tiled, "dense_rows"), b = parameter_of(*tiled, "dense_columns");
  REQUIRE(a.shape() == Shape{kHeadCount, kHeadWidth, 3});
  REQUIRE(b.shape() == Shape{kHeadCount, kHeadWidth, 3});
  compare_dense(*tiled, [&](int64_t h, int64_t i, int64_t j) {
    double left = 0, right = 0;
    for (int64_t d = 0; d < kHeadWidth; ++d) {
      left += query(h, i, d) * a.data<double>()[(h * kHeadWidth + d) * 3 + j / 3];
      right += query(h, i, d) * b.data<double>()[(h * kHeadWidth + d) * 3 + j % 3];
    }
    return left * right;
  });
}

TEST_CASE("synthesizer: every term passes the tests of attention kinds") {
  const AttentionKind& kind = find_attention_kind("synthesizer");
  for (const Texts& terms : {Texts{"random", "dense"}, Texts{"factorized-random"}, Texts{"factorized-dense"}})
    for (const auto& result :
         run_attention_tests(kind, kind.make_options({{"terms", terms}}), {.length = 9})) {
      CAPTURE(terms.front());
      CAPTURE(result.name);
      CHECK(result.failure == "");
    }
}

TEST_CASE("synthesizer: models have only the projections that the terms read") {
  const auto has = [](const Texts& terms, const std::string& projection) {
    EncoderOptions options = small_encoder("synthesizer");
    options.attention.front().options.set("terms", terms);
    for (const auto& [name, tensor] : Encoder(options).parameters())
      if (name == "layers.1.attention." + projection + ".weight") return true;
    return false;
  };
  CHECK(!has({"random", "factorized-random"}, "query_projection"));
  CHECK(!has({"random", "factorized-random"}, "key_projection"));
  CHECK(has({"random"}, "value_projection"));
  CHECK(has({"dense", "random"}, "query_projection"));
  CHECK(!has({"dense"}, "key_projection"));
  CHECK(has({"random", "dot-product"}, "key_projection"));
}

TEST_CASE("synthesizer: random scores are trained by default, and are state if train_random is false") {
  for (const bool trained : {true, false}) {
    const auto synthesizer = make_survey_kind(
        "synthesizer", {{"terms", Texts{"random", "factorized-random", "dense"}}, {"train_random", trained}});
    CHECK(synthesizer->parameters().size() == (trained ? 4 : 1));
    CHECK(synthesizer->saved_tensors().size() == 4);
  }
}

TEST_CASE("synthesizer: missing and repeated terms are errors") {
  CHECK_THROWS_WITH_AS(make_survey_kind("synthesizer", {{"terms", Texts{}}}),
                       "attention_options.terms: expected at least one term", OptionError);
  CHECK_THROWS_WITH_AS(make_survey_kind("synthesizer", {{"terms", Texts{"dense", "dense"}}}),
                       "attention_options.terms: expected each term once, got \"dense\" again", OptionError);
}

TEST_CASE("memory-compressed: a factor of 1 with identity convolutions gives softmax attention") {
  const auto compressed = make_survey_kind("memory-compressed", {{"factor", int64_t{1}}});
  for (const char* name : {"key_convolution", "value_convolution"}) {
    fill_by_index(*compressed, std::string(name) + ".weight", identity);
    clear_parameter(*compressed, std::string(name) + ".bias");
  }
  const auto with_first = [&](const Tensor& x, const char* name) {
    const Tensor first = parameter_of(*compressed, name);
    return concat({concat({first, first}, 0), x}, 1);
  };
  // A causal query attends to the learned first key and to the keys up to its position.
  for (const AttentionMask& mask : {kCausal, kNoMask}) {
    const Tensor expected =
        softmax_attention_reference(kSurveyQueries, with_first(kSurveyKeys, "first_key"),
                                    with_first(kSurveyValues, "first_value"), {.causal = mask.causal});
    CHECK(max_difference(attend_with(*compressed, mask), expected) < 1e-12);
  }
}

TEST_CASE("memory-compressed: keys are convolutions, and a causal query attends only to complete spans") {
  const auto compressed = make_survey_kind("memory-compressed", {});
  const Tensor weight = parameter_of(*compressed, "value_convolution.weight");
  const Tensor bias = parameter_of(*compressed, "value_convolution.bias");
  clear_parameter(*compressed, "key_convolution.weight");
  clear_parameter(*compressed, "key_convolution.bias");
  clear_parameter(*compressed, "first_key");  // now all scores are 0, so all weights of a query are equal
  const Tensor result = attend_with(*compressed, kCausal);
  const double* const v = kSurveyValues.data<double>();
  for (int64_t h = 0; h < kHeadCount; ++h)
    for (int64_t i = 0; i < kSurveyLength; ++i)
      for (int64_t d = 0; d < kHeadWidth; ++d) {
        double sum = parameter_of(*compressed, "first_value").data<double>()[h * kHeadWidth + d];
        const int64_t spans = (i + 1) / 3;
        for (int64_t j = 0; j < spans; ++j) {
          sum += bias.data<double>()[h * kHeadWidth + d];
          for (int64_t t = 0; t < 3; ++t)
            for (int64_t e = 0; e < kHeadWidth; ++e)
              sum += v[((3 * j + t) * kHeadCount + h) * kHeadWidth + e] *
                     weight.data<double>()[(h * 3 * kHeadWidth + t * kHeadWidth + e) * kHeadWidth + d];
        }
        CHECK(result.data<double>()[(i * kHeadCount + h) * kHeadWidth + d] ==
              doctest::Approx(sum / static_cast<double>(1 + spans)).epsilon(1e-12));
      }
  CHECK(truncation_error(*compressed) < 1e-12);
}
