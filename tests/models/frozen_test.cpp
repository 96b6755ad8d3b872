// Tests of models with frozen parameters.
#include <doctest/doctest.h>

#include "tests/models/forms.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using GradientMap = std::map<std::string, Tensor>;
using Selection = std::function<bool(const std::string&)>;

GradientMap compute_gradients(const AutoregressiveModelOptions& options, const Selection& is_frozen,
                              int64_t* node_count = nullptr) {
  AutoregressiveModel model(options);
  model.initialize(3);
  model.convert(DType::float64);
  model.freeze(is_frozen);
  const Batch batch{.tokens = random_tokens(2, 12, 7), .mask = {}, .labels = {}};
  const Tensor loss = model.compute_loss(batch, {.training = true, .seed = 5, .step = 2});
  if (node_count) *node_count = tape_size();
  backward(loss);
  GradientMap gradients;
  for (const auto& [name, tensor] : model.frozen_parameters()) {
    CHECK_FALSE(requires_grad(tensor));
    CHECK_FALSE(gradient(tensor).defined());
  }
  for (const auto& [name, tensor] : model.parameters()) gradients[name] = gradient(tensor);
  return gradients;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("frozen parameters have no gradients, and do not change the gradients of the others") {
  const std::map<std::string, Selection> selections = {
      {"embedding", [](const std::string& name) { return has(name, "embedding"); }},
      {"first layers",
       [](const std::string& name) {
         return has(name, "embedding") || has(name, "positions") || has(name, "layers.0") ||
                has(name, "layers.1");
       }},
      {"weights", [](const std::string& name) { return name.ends_with("weight"); }},
      {"biases", [](const std::string& name) { return name.ends_with("bias"); }},
      {"keys", [](const std::string& name) { return has(name, "key_projection"); }},
      {"feed-forward", [](const std::string& name) { return has(name, "linear"); }},
      {"predictor", [](const std::string& name) { return has(name, "predictor"); }},
      {"all but keys", [](const std::string& name) { return !has(name, "key_projection.weight"); }},
      {"all but linear1", [](const std::string& name) { return !has(name, "layers.1.linear1.weight"); }},
      {"all but one norm", [](const std::string& name) { return !has(name, "layers.0.norm2.weight"); }}};
  for (const auto& [form_name, options] : list_model_forms()) {
    const std::string& form = form_name;  // clang 14 cannot capture a structured binding
    CAPTURE(form);
    const GradientMap expected = compute_gradients(options, [](const std::string&) { return false; });
    for (const auto& [selection_name, is_frozen] : selections) {
      const std::string& selection = selection_name;
      CAPTURE(selection);
      const GradientMap found = compute_gradients(options, is_frozen);
      if (selection != "biases" && selection != "predictor") CHECK(found.size() < expected.size());
      for (const auto& [bound_name, value] : found) {
        const std::string& name = bound_name;
        CAPTURE(name);
        REQUIRE(value.defined());
        CHECK(max_difference(value, expected.at(name)) < 1e-12);
      }
    }
  }
}

TEST_CASE("ops that only frozen parameters use are not recorded") {
  AutoregressiveModelOptions options = small_options("softmax", OutputHead::categorical);
  options.encoder.layers = 6;
  int64_t all = 0, last_layer = 0, predictor = 0;
  compute_gradients(
      options, [](const std::string&) { return false; }, &all);
  compute_gradients(
      options,
      [](const std::string& name) {
        return !name.starts_with("layers.5") && !name.starts_with("norm") && !has(name, "predictor");
      },
      &last_layer);
  compute_gradients(
      options, [](const std::string& name) { return !has(name, "predictor"); }, &predictor);
  CHECK(last_layer < all / 4);
  CHECK(predictor < last_layer / 2);
}

TEST_CASE("frozen parameters stay frozen and adjacent after conversions") {
  AutoregressiveModel model(small_options("softmax"));
  model.freeze([](const std::string& name) { return has(name, "key_projection"); });
  const size_t frozen = model.frozen_parameters().size(), trained = model.parameters().size();
  CHECK(frozen == 4);
  model.convert(DType::float64);
  CHECK(model.frozen_parameters().size() == frozen);
  CHECK(model.parameters().size() == trained);
  CHECK(model.saved_tensors().size() == frozen + trained);
  for (const auto& [name, tensor] : model.frozen_parameters()) CHECK_FALSE(requires_grad(tensor));
  for (const auto& [name, tensor] : model.parameters()) CHECK(requires_grad(tensor));
}
