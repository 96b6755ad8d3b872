#include "models/set_transformer.h"

#include <doctest/doctest.h>

#include <numeric>

#include "models/layers/option_error.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/models/parameter_gradients.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kSets = 3, kElements = 7, kFeatures = 2;

SetTransformerOptions set_options(const std::string& attention, int64_t components) {
  SetTransformerOptions options{.encoder = small_encoder(attention),
                                .features = kFeatures,
                                .components = components,
                                .decoder_layers = 1,
                                .max_length = kElements};
  options.encoder.activation = Activation::gelu;
  return options;
}

std::unique_ptr<SetTransformer> make_set_model(const std::string& attention, int64_t components) {
  auto model = std::make_unique<SetTransformer>(set_options(attention, components));
  model->initialize(3);
  model->convert(DType::float64);
  return model;
}

Batch set_batch() {
  Batch batch;
  batch.elements = normal({kSets, kElements, kFeatures}, 1);
  batch.lengths = Tensor::from_vector<int64_t>({kElements, 4, 1}, {kSets});
  batch.targets = normal({kSets}, 2);
  return batch;
}

// Returns x (batch, length, …) with its rows permuted: row i of the result is row order[i] of x.
Tensor reordered(const Tensor& x, const std::vector<int64_t>& order) {
  std::vector<Tensor> rows;
  for (const int64_t row : order) rows.push_back(slice(x, 1, row, row + 1));
  return concat(rows, 1);
}

const std::vector<int64_t> kOrder = {2, 6, 0, 3, 1, 5, 4};

}  // namespace

TEST_CASE("set transformer: the encoder is equivariant and the result is invariant to permutations") {
  for (const std::string attention : {"softmax", "isab", "linear", "performer"})
    for (const int64_t components : {0, 2}) {
      CAPTURE(attention);
      CAPTURE(components);
      const auto model = make_set_model(attention, components);
      const Tensor elements = set_batch().elements, permuted = reordered(elements, kOrder);
      const AttentionMask no_mask{.causal = false, .key_lengths = {}};
      const auto encoded = [&](const Tensor& x) {
        return model->encoder.forward(model->input_projection.forward(x), no_mask, {});
      };
      CHECK(max_difference(reordered(encoded(elements), kOrder), encoded(permuted)) < 1e-12);
      CHECK(max_difference(encoded(elements), encoded(permuted)) > 1e-3);
      CHECK(max_difference(model->forward(elements, {}, {}), model->forward(permuted, {}, {})) < 1e-12);
    }
  // Negative control: local attention depends on the order of the elements.
  const auto local = make_set_model("local", 0);
  const Tensor elements = set_batch().elements;
  CHECK(max_difference(local->forward(elements, {}, {}),
                       local->forward(reordered(elements, kOrder), {}, {})) > 1e-6);
}

TEST_CASE("set transformer: padding elements have no effect") {
  for (const std::string& attention : length_mask_kinds()) {
    CAPTURE(attention);
    const auto model = make_set_model(attention, 2);
    Batch batch = set_batch(), alone;
    const Tensor outputs = model->forward(batch.elements, batch.lengths, {});
    CHECK(outputs.shape() == Shape{kSets, 2, 1 + 2 * kFeatures});
    alone.elements = slice(slice(batch.elements, 0, 1, 2), 1, 0, 4).clone();
    CHECK(max_difference(model->forward(alone.elements, {}, {}), slice(outputs, 0, 1, 2)) < 1e-10);
    double mean_of_sets = 0;
    for (int64_t b = 0; b < kSets; ++b) {
      const int64_t length = batch.lengths.data<int64_t>()[b];
      alone.elements = slice(slice(batch.elements, 0, b, b + 1), 1, 0, length).clone();
      mean_of_sets += model->compute_loss(alone, {}).item() / kSets;
    }
    CHECK(model->compute_loss(batch, {}).item() == doctest::Approx(mean_of_sets).epsilon(1e-10));
  }
}

TEST_CASE("set transformer: gradients of all parameters pass the gradient check") {
  for (const std::string attention : {"softmax", "isab"})
    for (const int64_t components : {0, 2}) {
      CAPTURE(attention);
      CAPTURE(components);
      const auto model = make_set_model(attention, components);
      const Batch batch = set_batch();
      const ForwardContext context{.training = true, .seed = 5, .step = 2};
      check_parameter_gradients(*model, [&] { return model->compute_loss(batch, context); });
    }
}

TEST_CASE("set transformer: the scores of numbers and of mixtures") {
  const Batch batch = set_batch();
  const auto numbers = make_set_model("softmax", 0);
  const auto predictions = numbers->forward(batch.elements, batch.lengths, {}).to_vector();
  const auto targets = batch.targets.to_vector();
  double error = 0;
  for (size_t i = 0; i < targets.size(); ++i) error += std::abs(predictions[i] - targets[i]) / kSets;
  CHECK(numbers->score_names() == std::vector<std::string>{"mean_absolute_error"});
  CHECK(numbers->compute_scores(batch).front() == doctest::Approx(error).epsilon(1e-12));

  const auto mixtures = make_set_model("isab", 2);
  const std::vector<double> scores = mixtures->compute_scores(batch);
  REQUIRE(scores.size() == mixtures->score_names().size());
  CHECK(scores[0] == mixtures->compute_loss(batch, {}).item());
  CHECK(scores[1] == -scores[0]);
  CHECK(scores[2] ==
        doctest::Approx(std::accumulate(targets.begin(), targets.end(), 0.0) / kSets).epsilon(1e-12));
}

TEST_CASE("isab: one inducing point gives every query the same result") {
  const auto attention =
      make_attention("isab", find_attention_kind("isab").make_options({{"inducing_points", int64_t{1}}}),
                     {.heads = 2, .dim = 4});
  attention->initialize(1);
  attention->convert(DType::float64);
  const Tensor q = normal({1, 5, 2, 4}, 1), k = normal({1, 9, 2, 4}, 2), v = normal({1, 9, 2, 4}, 3);
  const Tensor out = attention->forward(q, k, v, {.causal = false, .key_lengths = {}}, {}, "layers.0");
  CHECK(out.shape() == q.shape());
  CHECK(max_difference(slice(out, 1, 0, 1), slice(out, 1, 4, 5)) == 0);
}

TEST_CASE("set transformer: invalid options, elements and masks are errors") {
  const auto isab = make_short_attention("isab");
  const Tensor x = normal({1, 3, 2, 4}, 1);
  CHECK_THROWS_WITH_AS(isab->forward(x, x, x, {}, {}, "layers.0"),
                       "isab: each inducing point attends to all elements, so there is no causal form",
                       ShapeError);
  SetTransformerOptions options = set_options("softmax", 0);
  options.encoder.pre_norm = options.encoder.reversible = true;
  CHECK_THROWS_WITH_AS(SetTransformer{options},
                       "reversible: models of sets have no reversible layers, expected false", OptionError);
  const auto model = make_set_model("softmax", 0);
  CHECK_THROWS_WITH_AS(model->forward(normal({1, kElements + 1, kFeatures}), {}, {}),
                       "set transformer: elements (1, 8, 2) must be (batch, length, 2) with length at most 7",
                       ShapeError);
}
