// Tests of a custom attention kind that has parameters and state, and whose layers share a parameter.
#include <doctest/doctest.h>

#include <cmath>

#include "models/autoregressive_model.h"
#include "ops/elementwise.h"
#include "ops/sum.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// An attention kind in which each token attends only to its own position. The result is scale * v + offset.
// All layers share the parameter `scale`, and each layer has a separate state `offset`.
class ScaledValues final : public Attention {
 public:
  explicit ScaledValues(const AttentionSetup& setup) {
    if (setup.shared_parameter_source)
      add_alias(scale_, static_cast<const ScaledValues*>(setup.shared_parameter_source)->scale_);
    else
      add_parameter("scale", scale_, {setup.heads, 1}, make_uniform_initializer(1));
    add_state("offset", offset_, {setup.heads, setup.dim}, make_normal_initializer(1));
  }
  Tensor forward(const Tensor&, const Tensor&, const Tensor& v, const AttentionMask&, const ForwardContext&,
                 const std::string&) const override {
    return add(mul(v, scale_), offset_);
  }

 private:
  Tensor scale_, offset_;
};

const std::string& test_kind() {
  static const std::string name = [] {
    register_attention_kind({.name = "test-scaled",
                             .help = "",
                             .capabilities = {.causal = true},
                             .options = {},
                             .make = [](const OptionValues&, const AttentionSetup& setup) {
                               return std::make_unique<ScaledValues>(setup);
                             }});
    return "test-scaled";
  }();
  return name;
}

EncoderOptions scaled_options() {
  EncoderOptions options = small_encoder(test_kind());
  options.layers = 3;
  options.pre_norm = true;
  return options;
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

Tensor tensor_named(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [found, tensor] : tensors)
    if (found == name) return tensor;
  return {};
}

const std::string kScale = "layers.0.attention.inner_attention.scale";

// Returns the gradient of the shared parameter `scale`. Checks that backward() calls on_complete() for this
// parameter only after its gradient is complete.
Tensor scale_gradient(const EncoderOptions& options) {
  Encoder encoder(options);
  encoder.initialize(3);
  encoder.convert(DType::float64);
  const Tensor scale = tensor_named(encoder.parameters(), kScale);
  Tensor reported;
  backward(sum(square(encoder.forward(normal({2, 5, options.width()}, 4), {}, {.training = true}))), {},
           {.on_complete = [&](const Tensor& leaf) {
             if (leaf.raw_data() == scale.raw_data()) reported = gradient(leaf).clone();
           }});
  REQUIRE(reported.defined());
  CHECK(max_difference(reported, gradient(scale)) == 0);
  return reported;
}

}  // namespace

TEST_CASE("parameters and state of an attention kind are named, counted and initialised in the model") {
  const Encoder encoder(scaled_options()), without(small_encoder("softmax"));
  const std::vector<std::string> parameters = names_of(encoder.parameters()),
                                 saved = names_of(encoder.saved_tensors());
  CHECK(std::count(parameters.begin(), parameters.end(), kScale) == 1);
  for (const auto& name : parameters) CHECK(!name.ends_with(".offset"));
  CHECK(saved.size() == parameters.size() + 3);  // one offset per layer
  CHECK(std::count(saved.begin(), saved.end(), "layers.2.attention.inner_attention.offset") == 1);
  CHECK(!tensor_named(encoder.parameters(), "layers.1.attention.inner_attention.scale").defined());
  encoder.initialize(7);
  const auto scale = tensor_named(encoder.parameters(), kScale).to_vector();
  const auto offset =
      tensor_named(encoder.saved_tensors(), "layers.1.attention.inner_attention.offset").to_vector();
  CHECK(scale[0] != scale[1]);
  CHECK(offset[0] != 0);
  const Encoder again(scaled_options());
  again.initialize(7);
  CHECK(tensor_named(again.parameters(), kScale).to_vector() == scale);
  again.initialize(8);
  CHECK(tensor_named(again.parameters(), kScale).to_vector() != scale);
  CHECK(without.saved_tensors().size() == without.parameters().size());
}

TEST_CASE("layers share a parameter of an attention kind, also with recomputed and reversible layers") {
  EncoderOptions options = scaled_options();
  const Tensor plain = scale_gradient(options);
  options.recompute = true;
  CHECK(max_difference(plain, scale_gradient(options)) < 1e-12);
  options.recompute = false;
  options.reversible = true;
  const double reversible = scale_gradient(options).data<double>()[0];
  CHECK(reversible != 0);
  // Checks the gradient of one element of `scale` against a finite difference, with reversible layers.
  const auto loss_with = [&](double change) {
    Encoder encoder(options);
    encoder.initialize(3);
    encoder.convert(DType::float64);
    tensor_named(encoder.parameters(), kScale).data<double>()[0] += change;
    const NoGradScope no_grad;
    return sum(square(encoder.forward(normal({2, 5, options.width()}, 4), {}, {.training = true}))).item();
  };
  const double numeric = (loss_with(1e-5) - loss_with(-1e-5)) / 2e-5;
  CHECK(reversible == doctest::Approx(numeric).epsilon(1e-6));
}

TEST_CASE("kinds with different options do not share parameters") {
  const AttentionPattern pattern{
      {"local", find_attention_kind("local").make_options({{"window", int64_t{3}}})},
      {"linear", find_attention_kind("linear").default_options()},
      {"local", find_attention_kind("local").make_options({{"window", int64_t{4}}})},
      {"local", find_attention_kind("local").make_options({{"window", int64_t{3}}})}};
  CHECK(find_first_equal_layer(pattern, 2) == 2);
  CHECK(find_first_equal_layer(pattern, 3) == 0);
  CHECK(find_first_equal_layer(pattern, 5) == 1);
}
