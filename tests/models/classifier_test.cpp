#include "models/classifier.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "models/layers/option_error.h"
#include "ops/view.h"
#include "tests/models/parameter_gradients.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

ClassifierOptions make_classifier_options(const std::string& attention) {
  ClassifierOptions options{
      .encoder = small_encoder(attention), .vocabulary_size = 7, .classes = 3, .max_length = 12};
  options.encoder.activation = Activation::gelu;  // finite differences fail at the kink of relu
  return options;
}

Batch labelled_batch() {
  return {.tokens = random_tokens(3, 12, 7),
          .mask = {},
          .lengths = Tensor::from_vector<int64_t>({12, 5, 9}, {3}),
          .labels = Tensor::from_vector<int64_t>({2, 0, 1}, {3})};
}

}  // namespace

TEST_CASE("classifier: only sequences of different lengths need length masks") {
  ClassifierOptions options = make_classifier_options("big-bird");
  CHECK_THROWS_WITH_AS(Classifier{options}, doctest::Contains("has no length masks"), OptionError);
  options.has_variable_lengths = false;
  const Classifier classifier(options);
  CHECK(classifier.forward(random_tokens(3, 12, 7), {}, {}).shape() == Shape{3, 3});
}

TEST_CASE("classifier: logits do not depend on padding, with every attention kind with length masks") {
  for (const std::string& attention : length_mask_kinds()) {
    CAPTURE(attention);
    Classifier model(make_classifier_options(attention));
    model.initialize(3);
    model.convert(DType::float64);
    const Batch batch = labelled_batch();
    const Tensor logits = model.forward(batch.tokens, batch.lengths, {});
    CHECK(logits.shape() == Shape{3, 3});
    const Tensor changed = batch.tokens.clone();
    for (int64_t i = 5; i < 12; ++i) changed.data<uint8_t>()[12 + i] = 6;
    CHECK(max_difference(model.forward(changed, batch.lengths, {}), logits) < 1e-12);
    const Tensor alone = slice(slice(batch.tokens, 0, 1, 2), 1, 0, 5).clone();
    CHECK(max_difference(model.forward(alone, {}, {}), slice(logits, 0, 1, 2)) < 1e-10);
  }
}

TEST_CASE("classifier: gradients of all parameters pass the gradient check, with every attention kind") {
  for (const std::string& attention : length_mask_kinds()) {
    CAPTURE(attention);
    StoredDecisions decisions;  // keeps hash buckets while parameters change
    Classifier model(make_classifier_options(attention));
    model.initialize(3);
    model.convert(DType::float64);
    const Batch batch = labelled_batch();
    const ForwardContext context{.training = true, .seed = 5, .step = 2, .decisions = &decisions};
    check_parameter_gradients(model, [&] { return model.compute_loss(batch, context); });
  }
}

TEST_CASE("classifier: with summary tokens, padding has no effect and gradients pass the gradient check") {
  ClassifierOptions options = make_classifier_options("etc");
  options.summary_tokens = 2;
  Classifier model(options);
  model.initialize(3);
  model.convert(DType::float64);
  const Batch batch = labelled_batch();
  const Tensor logits = model.forward(batch.tokens, batch.lengths, {});
  const Tensor alone = slice(slice(batch.tokens, 0, 1, 2), 1, 0, 5).clone();
  CHECK(max_difference(model.forward(alone, {}, {}), slice(logits, 0, 1, 2)) < 1e-10);
  check_parameter_gradients(model, [&] { return model.compute_loss(batch, {}); });
  Classifier without(make_classifier_options("etc"));
  CHECK(count_parameters(model) == count_parameters(without) + 2 * options.encoder.width());
}

TEST_CASE("classifier: the loss is the mean cross entropy, and the accuracy counts the largest logits") {
  Classifier model(make_classifier_options("softmax"));
  model.initialize(3);
  model.convert(DType::float64);
  const Batch batch = labelled_batch();
  const auto logits = model.forward(batch.tokens, batch.lengths, {}).to_vector();
  const auto labels = batch.labels.to_vector();
  double nats = 0, correct = 0;
  for (size_t b = 0; b < 3; ++b) {
    const double* const row = logits.data() + 3 * b;
    nats += std::log(std::exp(row[0]) + std::exp(row[1]) + std::exp(row[2])) -
            row[static_cast<size_t>(labels[b])];
    correct += std::max_element(row, row + 3) - row == static_cast<int64_t>(labels[b]);
  }
  CHECK(model.compute_loss(batch, {}).item() == doctest::Approx(nats / 3).epsilon(1e-12));
  CHECK(model.compute_scores(batch)[0] == doctest::Approx(nats / 3).epsilon(1e-12));
  CHECK(model.compute_scores(batch)[1] == doctest::Approx(correct / 3));
}

TEST_CASE("classifier: a pretraining predicts masked tokens, which the encoder does not see") {
  ClassifierOptions options = make_classifier_options("softmax");
  options.masked_share = 0.99;
  Classifier model(options);
  model.initialize(3);
  model.convert(DType::float64);
  CHECK(model.score_names() == std::vector<std::string>{"nats_per_token", "accuracy"});
  // With this seed, the only token of the sequence is masked, so its probabilities do not depend on it.
  double total = 0, correct = 0;
  for (uint8_t token = 0; token < 7; ++token) {
    const auto scores = model.compute_scores({.tokens = Tensor::from_vector<uint8_t>({token}, {1, 1})}, 1);
    total += std::exp(-scores[0]);
    correct += scores[1];
  }
  CHECK(total == doctest::Approx(1).epsilon(1e-12));
  CHECK(correct == 1);
}

TEST_CASE("classifier: a pretraining ignores padding, and gradients pass the gradient check") {
  for (const int64_t summary_tokens : {0, 2}) {
    ClassifierOptions options = make_classifier_options("softmax");
    options.masked_share = 0.4;
    options.summary_tokens = summary_tokens;
    Classifier model(options);
    model.initialize(3);
    model.convert(DType::float64);
    Batch batch = labelled_batch();
    const ForwardContext context{.training = true, .seed = 5, .step = 2};
    check_parameter_gradients(model, [&] { return model.compute_loss(batch, context); });
    const double loss = model.compute_loss(batch, context).item();
    CHECK(loss != model.compute_loss(batch, {.training = true, .seed = 5, .step = 3}).item());
    batch.tokens = batch.tokens.clone();
    for (int64_t i = 5; i < 12; ++i) batch.tokens.data<uint8_t>()[12 + i] = 6;
    CHECK(model.compute_loss(batch, context).item() == doctest::Approx(loss).epsilon(1e-12));
  }
}

TEST_CASE("classifier: invalid options and arguments are errors") {
  Classifier model(make_classifier_options("linformer"));
  model.initialize(1);
  CHECK_THROWS_WITH_AS(model.forward(random_tokens(1, 13, 7), {}, {}),
                       "classifier: length 13 of the tokens must be at most 12", ShapeError);
  ClassifierOptions options = make_classifier_options("linformer");
  options.encoder.attention.front().options.set("rank", int64_t{13});
  CHECK_THROWS_WITH_AS(
      Classifier{options},
      "attention_options.rank: expected at most the maximum length of the sequences, 12, got 13",
      OptionError);
}
