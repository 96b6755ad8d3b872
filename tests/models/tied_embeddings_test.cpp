// Tests of models whose output layer shares its weight with the token embedding.
#include <doctest/doctest.h>

#include "models/decoder.h"
#include "models/generation.h"
#include "ops/elementwise.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

AutoregressiveModelOptions tied_options(bool tied) {
  AutoregressiveModelOptions options = small_options("linear", OutputHead::categorical);
  options.position_kind = PositionKind::none;
  options.encoder.rotary = true;
  options.tied_embeddings = tied;
  return options;
}

Tensor parameter_of(const AutoregressiveModel& model, const std::string& name) {
  for (const auto& [found, tensor] : model.parameters())
    if (found == name) return tensor;
  return {};
}

}  // namespace

TEST_CASE("the gradient of a tied weight is the sum of the gradients of both of its uses") {
  for (const int64_t chunks : {1, 3}) {
    AutoregressiveModelOptions tied_choice = tied_options(true), separate_choice = tied_options(false);
    tied_choice.loss_chunks = separate_choice.loss_chunks = chunks;
    AutoregressiveModel tied(tied_choice), separate(separate_choice);
    tied.initialize(3);
    for (const auto& [name, tensor] : separate.parameters())
      tensor.copy_from(name == "predictor.weight" ? tied.value_embedding.weight : parameter_of(tied, name));
    CHECK_FALSE(parameter_of(tied, "predictor.weight").defined());
    const Batch batch{.tokens = random_tokens(2, 12, 7), .mask = {}, .labels = {}};
    for (AutoregressiveModel* model : {&tied, &separate}) {
      model->convert(DType::float64);
      backward(model->compute_loss(batch, {}));
    }
    const Tensor sum = add(gradient(separate.value_embedding.weight), gradient(separate.predictor.weight));
    CHECK(max_difference(gradient(tied.value_embedding.weight), sum) < 1e-12);
    CHECK(max_difference(gradient(tied.predictor.bias), gradient(separate.predictor.bias)) < 1e-12);
  }
}

TEST_CASE("tied weights stay tied after conversions, and decoding equals the parallel form") {
  AutoregressiveModel model(tied_options(true));
  model.initialize(3);
  model.convert(DType::float64);
  CHECK(model.predictor.weight.raw_data() == model.value_embedding.weight.raw_data());
  const Tensor prefix = random_tokens(3, 2, 7);
  const Tensor recurrent = generate(model, prefix, 12, {.seed = 9});
  CHECK(recurrent.to_vector() ==
        generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9}).to_vector());
}

TEST_CASE("tied embeddings need embeddings as wide as the result of the encoder") {
  AutoregressiveModelOptions options = small_options("linear", OutputHead::categorical);
  options.tied_embeddings = true;
  CHECK_THROWS_WITH_AS(
      AutoregressiveModel{options},
      "tied_embeddings: embeddings have 4 features and the predictor 8: use axial, learned, rotary or no "
      "positions and no reversible layers",
      OptionError);
}

TEST_CASE("label smoothing and z-loss change the loss of training only") {
  AutoregressiveModelOptions options = tied_options(false);
  AutoregressiveModel plain(options);
  options.training_loss_options = {.label_smoothing = 0.2, .z_loss = 0.1};
  AutoregressiveModel regularised(options);
  const Batch batch{.tokens = random_tokens(2, 12, 7), .mask = {}, .labels = {}};
  for (AutoregressiveModel* model : {&plain, &regularised}) model->initialize(3);
  CHECK(plain.compute_scores(batch).loss_nats == regularised.compute_scores(batch).loss_nats);
  CHECK(plain.compute_loss(batch, {.training = true}).item() !=
        regularised.compute_loss(batch, {.training = true}).item());
}
