#include "models/autoregressive_model.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/models/parameter_gradients.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("gradients of a two-layer model with dropout pass the gradient check") {
  for (const std::string& attention : causal_kinds())
    for (const bool pre_norm : {false, true}) {
      CAPTURE(attention);
      CAPTURE(pre_norm);
      AutoregressiveModelOptions options =
          small_options(attention, pre_norm ? OutputHead::categorical : OutputHead::logistic_mixture);
      options.encoder.pre_norm = pre_norm;
      options.encoder.dropout = 0.2;
      options.encoder.activation = Activation::gelu;  // finite differences fail at the kink of relu
      StoredDecisions decisions;                      // keeps hash buckets while parameters change
      AutoregressiveModel model(options);
      model.initialize(3);
      model.convert(DType::float64);
      const Batch batch{random_tokens(2, 12, options.vocabulary_size), {}, {}};
      const ForwardContext context{.training = true, .seed = 5, .step = 2, .decisions = &decisions};
      check_parameter_gradients(model, [&] { return model.compute_loss(batch, context); });
    }
}

TEST_CASE(
    "gradients of a reversible model with axial positions, chunks and dropout pass the gradient check") {
  for (const std::string& attention : reversible_kinds()) {
    CAPTURE(attention);
    AutoregressiveModelOptions options = reformer_options(
        attention, attention == "linear" ? OutputHead::logistic_mixture : OutputHead::categorical);
    options.encoder.dropout = 0.2;
    options.encoder.activation = Activation::gelu;
    options.encoder.feedforward_chunks = 3;
    options.loss_chunks = 4;
    AutoregressiveModel model(options);
    model.initialize(3);
    model.convert(DType::float64);
    const Batch batch{random_tokens(2, 12, options.vocabulary_size), {}, {}};
    StoredDecisions decisions;
    const ForwardContext context{.training = true, .seed = 5, .step = 2, .decisions = &decisions};
    check_parameter_gradients(model, [&] { return model.compute_loss(batch, context); });
  }
}

TEST_CASE("recomputation of activations saves memory and changes neither loss nor gradients") {
  AutoregressiveModelOptions options = small_options("linear");
  options.encoder.dropout = 0.2;
  options.encoder.layers = 6;
  const Batch batch{random_tokens(64, 12, 256), {}, {}};
  const ForwardContext context{.training = true, .seed = 5, .step = 2};
  std::vector<double> results[2];
  int64_t peaks[2];
  for (const bool recompute : {false, true}) {
    options.encoder.recompute = recompute;
    AutoregressiveModel model(options);
    model.initialize(3);
    const int64_t before = get_device_allocator().stats().active_bytes;
    get_device_allocator().reset_peak();
    const Tensor loss = model.compute_loss(batch, context);
    peaks[recompute] = get_device_allocator().stats().active_bytes - before;
    backward(loss);
    results[recompute].push_back(loss.item());
    for (const auto& [name, parameter] : model.parameters())
      for (const double g : gradient(parameter).to_vector()) results[recompute].push_back(g);
  }
  CHECK(results[0] == results[1]);
  CHECK(peaks[1] < peaks[0] / 3);
}

// Attention kinds without a recurrent form are not tested, because some of them use later tokens to select
// keys.
TEST_CASE("outputs do not depend on later tokens") {
  for (const std::string& attention : recurrent_kinds()) {
    AutoregressiveModel model(small_options(attention));
    model.initialize(1);
    const Tensor tokens = random_tokens(1, 11, 256);
    const Tensor before = model.forward(tokens, {});
    tokens.data<uint8_t>()[7] ^= 0x55;
    const Tensor after = model.forward(tokens, {});
    const int64_t width = before.size(2);
    for (int64_t i = 0; i < 7 * width; ++i) REQUIRE(before.data<float>()[i] == after.data<float>()[i]);
    CHECK(before.data<float>()[7 * width] != after.data<float>()[7 * width]);
  }
}

TEST_CASE("score() returns the loss and the share of correct predictions, with and without chunks") {
  for (const int64_t chunks : {1, 3}) {
    CAPTURE(chunks);
    AutoregressiveModelOptions options = small_options("linear", OutputHead::categorical);
    options.loss_chunks = chunks;
    AutoregressiveModel model(options);
    model.initialize(3);
    Batch batch;
    batch.tokens = random_tokens(5, 9, 7);
    batch.mask = Tensor::zeros({5, 8}, DType::uint8);
    for (int64_t i = 0; i < 40; i += 3) batch.mask.data<uint8_t>()[i] = 1;
    const auto scores = model.compute_scores(batch);
    CHECK(scores.loss_nats == doctest::Approx(model.compute_loss(batch, {}).item()).epsilon(1e-6));

    const auto logits = model.forward(slice(batch.tokens, 1, 0, -1), {}).to_vector();
    const auto targets = slice(batch.tokens, 1, 1, 9).to_vector(), weights = batch.mask.to_vector();
    double correct = 0, unmasked = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(7 * i);
      correct += weights[i] * (std::max_element(row, row + 7) - row == targets[i]);
      unmasked += weights[i];
    }
    CHECK(unmasked < 40);
    CHECK(scores.accuracy == doctest::Approx(correct / unmasked));
  }
  AutoregressiveModel mixtures(small_options("linear"));
  mixtures.initialize(3);
  CHECK(mixtures.compute_scores({.tokens = random_tokens(2, 5, 256), .mask = {}, .labels = {}}).accuracy ==
        -1);
}

TEST_CASE("targets of a batch replace the next tokens") {
  for (const int64_t chunks : {1, 3}) {
    CAPTURE(chunks);
    AutoregressiveModelOptions options = small_options("linear", OutputHead::categorical);
    options.loss_chunks = chunks;
    AutoregressiveModel model(options);
    model.initialize(3);
    Batch batch{.tokens = random_tokens(2, 9, 7)};
    const auto next = model.compute_scores(batch);
    batch.token_targets = slice(batch.tokens, 1, 1, 9);
    CHECK(model.compute_scores(batch).loss_nats == next.loss_nats);
    // With the most probable tokens as targets, all predictions are correct.
    batch.token_targets = argmax(model.forward(slice(batch.tokens, 1, 0, -1), {})).to(DType::uint8);
    CHECK(model.compute_scores(batch).accuracy == 1);
    CHECK(model.compute_scores(batch).loss_nats < next.loss_nats);
  }
}

TEST_CASE("models accept empty sequences and batches of one, and refuse long sequences and invalid options") {
  AutoregressiveModel model(small_options("linear"));
  model.initialize(1);
  CHECK(model.forward(Tensor::zeros({2, 0}, DType::uint8), {}).shape() == Shape{2, 0, 6});
  CHECK(model.compute_loss({random_tokens(1, 2, 256), {}, {}}, {}).numel() == 1);
  CHECK_THROWS_WITH_AS(model.forward(Tensor::zeros({2, 12}, DType::uint8), {}),
                       "model: inputs (2, 12) must be (batch, length) with length at most 11", ShapeError);
  AutoregressiveModelOptions bad = small_options("linear");
  bad.value_embedding_dim = 8;
  CHECK_THROWS_WITH_AS(AutoregressiveModel{bad}, "value_dim: expected less than the width, 8, got 8",
                       OptionError);
  bad.value_embedding_dim = 0;
  bad.encoder.heads = bad.encoder.head_dim = 1;
  CHECK_THROWS_WITH_AS(AutoregressiveModel{bad},
                       "value_dim: the width, 1, is too small for values and positions", OptionError);
  CHECK_THROWS_WITH(find_attention_kind("liner"),
                    doctest::Contains("unknown attention kind \"liner\" (known: linear, softmax, lsh"));
  CHECK_THROWS_WITH(find_attention_kind("liner"), doctest::Contains("; did you mean \"linear\"?"));
}
