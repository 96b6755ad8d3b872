#include "models/layers/adapted_layers.h"

#include <doctest/doctest.h>

#include "models/generation.h"
#include "ops/elementwise.h"
#include "ops/low_rank.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "tests/models/forms.h"
#include "tests/models/parameter_gradients.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const ForwardContext kTraining{.training = true, .seed = 5, .step = 2};

Batch make_batch() {
  return {.tokens = random_tokens(2, 12, 7), .mask = {}, .labels = {}};
}

// Returns a float64 model whose adapters have random weights, and whose other parameters are frozen.
std::unique_ptr<AutoregressiveModel> make_adapted_model(const AutoregressiveModelOptions& options,
                                                        const LowRankOptions& adapters,
                                                        const std::vector<std::string>& layers = {}) {
  auto model = std::make_unique<AutoregressiveModel>(options);
  add_low_rank_adapters(*model, layers.empty() ? list_adaptable_layers(*model) : layers, adapters);
  model->freeze([](const std::string& name) { return !is_adapter_tensor(name); });
  model->initialize(3);
  model->convert(DType::float64);
  for (const auto& [name, tensor] : model->parameters())
    if (name.ends_with("lora_B.weight"))
      tensor.copy_from(mul(normal(tensor.shape(), static_cast<int>(name.size())), 0.3));
  return model;
}

std::map<std::string, std::vector<double>> compute_gradients(const AutoregressiveModel& model) {
  backward(model.compute_loss(make_batch(), kTraining));
  std::map<std::string, std::vector<double>> gradients;
  for (const auto& [name, tensor] : model.parameters()) gradients[name] = gradient(tensor).to_vector();
  return gradients;
}

}  // namespace

TEST_CASE("add_low_rank adds the products of the terms to their columns, as a composition of products does") {
  const Tensor y = normal({2, 3, 7}, 1), low = normal({2, 3, 5}, 2), b1 = normal({2, 4}, 3),
               b2 = normal({3, 1}, 4);
  const Tensor found = add_low_rank(y, low, {{b1, 1}, {b2, 4}}, 0.5);
  const MatmulOptions transposed{.transpose_b = true};
  const Tensor first = matmul(slice(low, -1, 0, 4), reshape(b1, {1, 2, 4}), transposed),
               second = matmul(slice(low, -1, 4, 5), reshape(b2, {1, 3, 1}), transposed),
               zeros = Tensor::zeros({2, 3, 1}, DType::float64);
  CHECK(max_difference(found, add(y, mul(concat({zeros, first, zeros, second}, -1), 0.5))) < 1e-14);
  CHECK(y.to_vector() == normal({2, 3, 7}, 1).to_vector());
  CHECK_THROWS_WITH_AS(add_low_rank(y, low, {{b1, 1}}, 1),
                       "add_low_rank: expected (2, 3, 4) for the ranks of the matrices, got (2, 3, 5)",
                       ShapeError);
  CHECK_THROWS_WITH_AS(add_low_rank(y, low, {{b1, 6}, {b2, 4}}, 1),
                       "add_low_rank: matrix (2, 4) (out, rank) at column 6 does not match (2, 3, 7)",
                       ShapeError);
  CHECK_THROWS_AS(add_low_rank(y, low, {{b1.to(DType::float32), 1}, {b2, 4}}, 1), ShapeError);
}

TEST_CASE("new adapters change no result, and have the names and shapes of PEFT") {
  for (const auto& [form_name, options] : list_model_forms()) {
    const std::string& form = form_name;  // clang 14 cannot capture a structured binding
    CAPTURE(form);
    AutoregressiveModel plain(options), adapted(options);
    add_low_rank_adapters(adapted, list_adaptable_layers(adapted), {.rank = 3, .dropout = 0.5});
    plain.initialize(3);
    adapted.initialize(3);
    CHECK(plain.compute_scores(make_batch()).loss_nats == adapted.compute_scores(make_batch()).loss_nats);
    std::map<std::string, Shape> shapes;
    for (const auto& [name, tensor] : adapted.parameters()) shapes[name] = tensor.shape();
    const std::string name = "layers.1.attention.query_projection.";
    CHECK(shapes.at(name + "lora_A.weight") == Shape{3, 8});
    CHECK(shapes.at(name + "lora_B.weight") == Shape{8, 3});
    CHECK(shapes.at("layers.0.linear1.lora_A.weight") == Shape{3, 8});
    CHECK(shapes.at("layers.0.linear1.lora_B.weight") == Shape{12, 3});
  }
}

TEST_CASE("the gradients of adapters are those of central differences, and frozen weights have none") {
  for (const auto& [form_name, options] : list_model_forms()) {
    const std::string& form = form_name;
    CAPTURE(form);
    for (const double dropout : {0.0, 0.3}) {
      const auto model = make_adapted_model(options, {.rank = 2, .alpha = 3, .dropout = dropout});
      check_parameter_gradients(*model, [&] { return model->compute_loss(make_batch(), kTraining); });
      for (const auto& [name, tensor] : model->frozen_parameters()) CHECK_FALSE(gradient(tensor).defined());
    }
  }
}

TEST_CASE(
    "chunks, recomputation and slices of a batch draw the dropout masks of adapters of the whole batch") {
  const LowRankOptions adapters{.rank = 2, .alpha = 3, .dropout = 0.4};
  AutoregressiveModelOptions plain = small_options("softmax", OutputHead::categorical);
  const auto expected = compute_gradients(*make_adapted_model(plain, adapters));
  AutoregressiveModelOptions chunked = plain;
  chunked.encoder.feedforward_chunks = 3;
  chunked.encoder.recompute = true;
  for (const auto& [name, values] : compute_gradients(*make_adapted_model(chunked, adapters)))
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(values[i] == doctest::Approx(expected.at(name)[i]).epsilon(1e-10));
  const auto model = make_adapted_model(plain, adapters);
  const Tensor all = model->forward(slice(make_batch().tokens, 1, 0, 11), kTraining);
  ForwardContext second = kTraining;
  second.first_example = 1;
  const Tensor one = model->forward(slice(slice(make_batch().tokens, 1, 0, 11), 0, 1, 2), second);
  CHECK(max_difference(one, slice(all, 0, 1, 2)) < 1e-13);
  ForwardContext later = kTraining;
  ++later.step;
  CHECK(max_difference(all, model->forward(slice(make_batch().tokens, 1, 0, 11), later)) > 1e-3);
}

TEST_CASE("merged weights give the results of adapters, in evaluation and in decoding") {
  for (const auto& [form_name, options] : list_model_forms()) {
    const std::string& form = form_name;  // clang 14 cannot capture a structured binding
    CAPTURE(form);
    const auto model = make_adapted_model(options, {.rank = 2, .alpha = 3, .dropout = 0.4});
    const double before = model->compute_scores(make_batch()).loss_nats;
    const Tensor prefix = random_tokens(3, 2, 7);
    const auto tokens = generate(*model, prefix, 12, {.seed = 9}).to_vector();
    CHECK(tokens == generate(*model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9}).to_vector());
    merge_adapters(*model);
    for (const auto& [name, tensor] : model->saved_tensors()) CHECK_FALSE(is_adapter_tensor(name));
    CHECK(model->compute_scores(make_batch()).loss_nats == doctest::Approx(before).epsilon(1e-12));
    CHECK(generate(*model, prefix, 12, {.seed = 9}).to_vector() == tokens);
    AutoregressiveModel base(options);
    base.initialize(3);
    base.convert(DType::float64);
    CHECK(std::abs(base.compute_scores(make_batch()).loss_nats - before) > 1e-3);
  }
}

TEST_CASE("adapters of some layers leave the others alone, and unknown layers are errors") {
  const AutoregressiveModelOptions options = small_options("softmax", OutputHead::categorical);
  const auto model = make_adapted_model(options, {.rank = 2}, {"layers.0.attention.key_projection"});
  CHECK(model->parameters().size() == 2);
  check_parameter_gradients(*model, [&] { return model->compute_loss(make_batch(), kTraining); });
  AutoregressiveModel other(options);
  CHECK_THROWS_WITH_AS(add_low_rank_adapters(other, {"layers.0.linear9"}, {}),
                       "layers.0.linear9: the model has no such linear layer", std::invalid_argument);
  CHECK_THROWS_WITH_AS(add_low_rank_adapters(other, {"predictor"}, {}),
                       "predictor: the layer takes no adapter", std::invalid_argument);
}
