// Tests that compare small language models with the package transformers. tests/golden/README.md describes
// the keys of transformers.safetensors.
#include <doctest/doctest.h>

#include <functional>

#include "models/decoder.h"
#include "ops/view.h"
#include "tests/support/random.h"
#include "tests/train/golden.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kLength = 12;

AutoregressiveModelOptions llama_options() {
  AutoregressiveModelOptions options;
  options.head = OutputHead::categorical;
  options.vocabulary_size = 13;
  options.max_length = kLength;
  options.position_kind = PositionKind::none;
  options.predictor_bias = false;
  options.encoder = {.layers = 2,
                     .heads = 4,
                     .head_dim = 4,
                     .feedforward = 24,
                     .attention = {{"softmax", find_attention_kind("softmax").default_options()}},
                     .rotary = true,
                     .rotary_base = 100,
                     .pre_norm = true,
                     .activation = Activation::silu,
                     .projection_biases = false,
                     .feedforward_biases = false,
                     .gated_feedforward = true,
                     .norm = {.kind = NormKind::rms, .eps = 1e-5},
                     .kv_heads = 2,
                     .model_width = 16};
  return options;
}

AutoregressiveModelOptions options_of(const std::string& name) {
  AutoregressiveModelOptions options = llama_options();
  EncoderOptions& e = options.encoder;
  if (name == "qwen2") {
    e.kv_heads = 1;
    e.projection_biases = true;
    e.out_bias = false;
    e.norm.eps = 1e-6;
    e.rotary_base = 1e6;
    options.tied_embeddings = true;
  } else if (name == "qwen3") {
    e.head_dim = 6;
    e.qk_norm = true;
    e.norm.eps = 1e-6;
    e.rotary_base = 1e4;
  } else if (name == "gemma") {
    e.head_dim = 8;
    e.kv_heads = 1;
    e.norm = {.kind = NormKind::rms, .eps = 1e-6, .offset = true};
    e.activation = Activation::gelu_tanh;
    e.rotary_base = 1e4;
  } else if (name == "gpt2" || name == "gpt_neox") {
    e.projection_biases = e.feedforward_biases = true;
    e.gated_feedforward = false;
    e.norm = {};
    e.kv_heads = 0;
    e.rotary = name == "gpt_neox";
    e.activation = e.rotary ? Activation::gelu : Activation::gelu_tanh;
    if (e.rotary) {
      e.heads = 2;
      e.head_dim = 8;
      e.rotary_base = 1e4;
      e.rotary_share = 0.5;
      e.parallel_residual = true;
    } else {
      options.position_kind = PositionKind::learned;
      options.tied_embeddings = true;
    }
  }
  return options;
}

using Weights = std::map<std::string, Tensor>;

// Returns the tensors of a case whose names begin with `group` and a period.
Weights read_group(const SafetensorsFile& file, const std::string& name, const std::string& group) {
  const std::string prefix = name + "." + group + ".";
  Weights weights;
  for (const auto& [key, entry] : file.entries())
    if (key.starts_with(prefix)) weights[key.substr(prefix.size())] = file.read(key);
  return weights;
}

struct GoldenModel {
  explicit GoldenModel(const AutoregressiveModelOptions& options, const Weights& weights,
                       DType dtype = DType::float64)
      : model(options) {
    model.convert(dtype);
    REQUIRE(model.parameters().size() == weights.size());
    for (const auto& [bound_name, parameter] : model.parameters()) {
      const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
      CAPTURE(name);
      REQUIRE(weights.contains(name));
      REQUIRE(weights.at(name).shape() == parameter.shape());
      parameter.copy_from(weights.at(name).to(dtype));
    }
  }
  double compare_logits(const SafetensorsFile& file, const std::string& name) const {
    const NoGradScope no_grad;
    return max_difference(model.forward(file.read(name + ".tokens"), {}).to(DType::float64),
                          file.read(name + ".logits"));
  }
  AutoregressiveModel model;
};

// transformers computes rotary positions and its RMS norms partly in float32.
constexpr double kTolerance = 2e-5;

}  // namespace

TEST_CASE("models of transformers: logits, loss, gradients and recurrent decoding") {
  const SafetensorsFile file = open_golden_file("transformers");
  for (const std::string name : {"llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "gemma"}) {
    CAPTURE(name);
    const Weights weights = read_group(file, name, "weight");
    GoldenModel golden(options_of(name), weights);
    CHECK(golden.compare_logits(file, name) < kTolerance);
    CHECK(GoldenModel(options_of(name), weights, DType::float32).compare_logits(file, name) < 1e-4);

    const Tensor tokens = file.read(name + ".tokens");
    const Tensor loss = golden.model.compute_loss({tokens, {}, {}}, {});
    CHECK(loss.item() == doctest::Approx(file.read(name + ".loss").item()).epsilon(1e-5));
    backward(loss);
    const Weights gradients = read_group(file, name, "gradient");
    CHECK(gradients.size() > 10);
    for (const auto& [bound_parameter, parameter] : golden.model.parameters()) {
      const std::string& parameter_name = bound_parameter;
      CAPTURE(parameter_name);
      if (gradients.contains(parameter_name))
        CHECK(max_difference(gradient(parameter), gradients.at(parameter_name).to(DType::float64)) <
              kTolerance);
    }

    const NoGradScope no_grad;
    Decoder decoder(golden.model, 2);
    const Tensor logits = file.read(name + ".logits");
    for (int64_t t = 0; t < kLength; ++t) {
      const Tensor& step = decoder.step(slice(tokens, 1, t, t + 1).clone().view({2}).to(DType::int64));
      CHECK(max_difference(step, slice(logits, 1, t, t + 1).clone().view({2, 13})) < kTolerance);
    }
  }
}

TEST_CASE("the comparison with transformers finds wrong orders of heads, layers, bases and eps") {
  const SafetensorsFile file = open_golden_file("transformers");
  const Weights weights = read_group(file, "llama", "weight");
  const auto difference = [&](const std::function<void(AutoregressiveModelOptions&, Weights&)>& change) {
    AutoregressiveModelOptions options = llama_options();
    Weights changed = weights;
    change(options, changed);
    return GoldenModel(options, changed).compare_logits(file, "llama");
  };
  const auto swap_rows = [](Tensor& x, const std::vector<int64_t>& order) {
    const int64_t rows = x.size(0) / static_cast<int64_t>(order.size());
    std::vector<Tensor> parts;
    for (const int64_t i : order) parts.push_back(slice(x, 0, i * rows, (i + 1) * rows));
    x = concat(parts, 0).clone();
  };
  CHECK(difference([](auto&, auto&) {}) < kTolerance);
  CHECK(difference([](auto& o, auto&) { o.encoder.rotary_base = 1e4; }) > 1e-3);
  CHECK(difference([](auto& o, auto&) { o.encoder.norm.eps = 1e-6; }) > 1e-4);
  CHECK(difference([](auto&, auto& w) {
          std::swap(w["layers.0.linear1.weight"], w["layers.0.linear3.weight"]);
        }) > 1e-3);
  CHECK(difference([&](auto&, auto& w) {
          swap_rows(w["layers.0.attention.query_projection.weight"], {0, 2, 1, 3});
        }) > 1e-3);
  CHECK(difference([&](auto&, auto& w) {
          for (const char* name : {"query", "key"})
            swap_rows(w[std::string("layers.0.attention.") + name + "_projection.weight"],
                      name[0] == 'q'
                          ? std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15}
                          : std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7});
        }) > 1e-3);
}
