// Tests that compare values and gradients in float64 with PyTorch. tests/golden/README.md describes the keys
// of the files.
#include <doctest/doctest.h>

#include <numbers>

#include "models/autoregressive_model.h"
#include "models/layers/loss_terms.h"
#include "models/set_transformer.h"
#include "ops/elementwise.h"
#include "ops/logistic_mixture.h"
#include "ops/losses.h"
#include "ops/lsh_attention.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/random.h"
#include "tests/train/golden.h"
#include "train/optimization/optimizer.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the largest difference between the tensors, divided by the largest magnitude in `expected`.
double relative_difference(const Tensor& actual, const Tensor& expected) {
  double largest = 1e-12;
  for (const double value : expected.to_vector()) largest = std::max(largest, std::abs(value));
  return max_difference(actual, expected) / largest;
}

Tensor slice_first(const Tensor& x, int64_t i) {
  Shape shape, strides;
  for (int d = 1; d < x.rank(); ++d) {
    shape.append(x.size(d));
    strides.append(x.strides()[d]);
  }
  return x.view(shape, strides, i * x.strides()[0]).clone();
}

AutoregressiveModelOptions golden_options(const std::string& name) {
  AutoregressiveModelOptions options;
  options.encoder.layers = 2;
  options.encoder.heads = 2;
  options.encoder.head_dim = 8;
  options.encoder.feedforward = 32;
  const std::string kind = name == "softmax" ? "softmax" : "linear";
  options.encoder.attention = {{kind, find_attention_kind(kind).default_options()}};
  options.encoder.pre_norm = name == "linear_pre_gelu";
  options.encoder.activation = name == "linear_pre_gelu" ? Activation::gelu : Activation::relu;
  options.mixtures = 3;
  options.max_length = 11;
  return options;
}

}  // namespace

TEST_CASE("the mixture of logistics equals PyTorch in value and gradient, in every branch") {
  const SafetensorsFile file = open_golden_file("mixture");
  for (const char* group : {"made", "random", "single"}) {
    CAPTURE(group);
    auto read = [&](const char* key) { return file.read(std::string(group) + "." + key); };
    const Tensor parameters = set_requires_grad(read("parameters"));
    CHECK(relative_difference(logistic_mixture_nll(parameters, read("values")), read("nll")) < 1e-10);
    const Tensor loss = logistic_mixture_loss(parameters, read("values"));
    CHECK(loss.item() == doctest::Approx(read("loss").item()).epsilon(1e-11));
    backward(loss);
    CHECK(relative_difference(gradient(parameters), read("gradient_of_loss")) < 1e-10);
  }
}

TEST_CASE("optimizers compute the parameters of PyTorch for twelve steps") {
  const SafetensorsFile file = open_golden_file("optimizers");
  struct Run {
    const char* name;
    OptimizerConfig config;
  };
  auto config = [](const char* kind, double decay, double clip = 0) {
    OptimizerConfig c;
    c.kind = kind;
    c.lr = 1e-2;
    c.weight_decay = decay;
    c.clip_norm = clip;
    c.clip = "per_tensor";
    return c;
  };
  OptimizerConfig value_clip = config("adam", 0), relative = config("adafactor", 0);
  value_clip.options.set("clip_value", 0.5);
  relative.lr = 0.5;
  relative.options.set("decay_rate", 0.6);
  relative.options.set("update_clip", 1.5);
  OptimizerConfig muon = config("muon", 0.1, 1);
  muon.options.set("momentum", 0.8);
  muon.options.set("iterations", int64_t{3});
  const Run runs[] = {{"radam", config("radam", 0)},
                      {"radam_decay_clip", config("radam", 0.01, 1)},
                      {"adam", config("adam", 0)},
                      {"adam_l2", config("adam", 0.01)},
                      {"adamw", config("adamw", 0.01)},
                      {"sgd", config("sgd", 0)},
                      {"sgd_l2", config("sgd", 0.01)},
                      {"adam_value", value_clip},
                      {"adafactor", config("adafactor", 0)},
                      {"adafactor_decay_clip", config("adafactor", 0.01, 1)},
                      {"adafactor_relative", relative},
                      {"muon", config("muon", 0)},
                      {"muon_decay_clip", muon}};
  for (const Run& run : runs) {
    CAPTURE(run.name);
    std::vector<std::pair<std::string, Tensor>> parameters;
    for (const char* which : {"matrix", "vector"})
      parameters.emplace_back(
          which, set_requires_grad(slice_first(file.read(std::string(run.name) + "." + which), 0)));
    Optimizer optimizer(run.config, parameters);
    for (int64_t step = 0; step < 12; ++step) {
      for (const auto& [which, parameter] : parameters)
        set_gradient(parameter, slice_first(file.read("gradient." + which), step));
      optimizer.step(run.config.lr);
      for (const auto& [which, parameter] : parameters)
        CHECK(max_difference(parameter,
                             slice_first(file.read(std::string(run.name) + "." + which), step + 1)) < 1e-12);
    }
  }
}

TEST_CASE(
    "whole models agree with PyTorch: outputs, loss, the gradient of every parameter, and eight steps of "
    "training") {
  const SafetensorsFile weights = open_golden_file("model_weights");
  for (const char* name : {"linear", "softmax", "linear_pre_gelu"}) {
    CAPTURE(name);
    const SafetensorsFile file = open_golden_file(std::string("model_") + name);
    AutoregressiveModel model(golden_options(name));
    model.convert(DType::float64);
    // The constructor of the model rounds the position features to float32, so the test replaces the features
    // by float64 values.
    model.position_features.copy_from(make_sinusoidal_position_features(11, 8));
    weights.load_into(model.parameters());
    const Tensor images = file.read("images");
    const Tensor inputs = images.view({2, 11}, images.strides());
    CHECK(relative_difference(model.forward(inputs, {}), file.read("output")) < 1e-11);
    const Batch batch{images, {}, {}};
    const Tensor loss = model.compute_loss(batch, {});
    CHECK(loss.item() == doctest::Approx(file.read("loss").item()).epsilon(1e-12));
    backward(loss);
    for (const auto& [parameter_name_bound, parameter] : model.parameters()) {
      const auto& parameter_name = parameter_name_bound;  // clang 14 cannot capture structured bindings
      CAPTURE(parameter_name);
      CHECK(max_difference(gradient(parameter), file.read("gradient." + parameter_name)) < 1e-11);
      set_gradient(parameter, {});
    }
    OptimizerConfig config;
    config.lr = 1e-2;
    config.weight_decay = 0.01;
    config.clip_norm = 1;
    config.clip = "per_tensor";
    Optimizer optimizer(config, model.parameters());
    for (const double expected : file.read("losses").to_vector()) {
      const Tensor value = model.compute_loss(batch, {});
      CHECK(value.item() == doctest::Approx(expected).epsilon(1e-9));
      backward(value);
      optimizer.step(config.lr);
    }
  }
}

TEST_CASE("positions and single functions equal PyTorch") {
  const SafetensorsFile positions = open_golden_file("positions"), file = open_golden_file("functions");
  CHECK(max_difference(make_sinusoidal_position_features(11, 8), positions.read("width_8")) < 1e-12);
  const Tensor wide = make_sinusoidal_position_features(784, 128), expected = positions.read("width_128");
  const int64_t rows[] = {0, 1, 2, 100, 783};
  for (int64_t i = 0; i < 5; ++i)
    CHECK(max_difference(slice_first(wide, rows[i]), slice_first(expected, i)) < 1e-12);
  auto compare = [&](const std::string& name, int64_t inputs,
                     const std::function<Tensor(const std::vector<Tensor>&)>& f) {
    CAPTURE(name);
    std::vector<Tensor> x;
    for (int64_t i = 0; i < inputs; ++i)
      x.push_back(set_requires_grad(file.read(name + ".x" + std::to_string(i))));
    const Tensor y = f(x);
    CHECK(relative_difference(y, file.read(name + ".y")) < 1e-12);
    backward(y, file.read(name + ".gy"));
    for (int64_t i = 0; i < inputs; ++i)
      CHECK(relative_difference(gradient(x[static_cast<size_t>(i)]),
                                file.read(name + ".gx" + std::to_string(i))) < 1e-11);
  };
  compare("gelu_erf", 1, [](const auto& x) { return gelu(x[0]); });
  compare("layer_norm", 3, [](const auto& x) { return layer_norm(x[0], x[1], x[2]); });
  compare("logsumexp", 1, [](const auto& x) { return logsumexp(x[0]); });
  compare("mse_loss", 2, [](const auto& x) { return reshape(mse_loss(x[0], x[1]), {1}); });
  compare("bce_with_logits", 2,
          [](const auto& x) { return reshape(binary_cross_entropy_with_logits(x[0], x[1]), {1}); });
  compare("gelu_tanh", 1, [](const auto& in) {
    const Tensor& x = in[0];
    const Tensor inner = mul(add(x, mul(mul(square(x), x), 0.044715)), std::sqrt(2 / std::numbers::pi));
    return mul(mul(x, add(tanh(inner), 1)), 0.5);
  });
  const auto labels = [&](const std::string& name) { return file.read(name + ".labels"); };
  compare("cross_entropy", 1, [&](const auto& x) {
    const Tensor targets = labels("cross_entropy");
    std::vector<Tensor> losses;
    for (int64_t i = 0; i < targets.numel(); ++i)
      losses.push_back(reshape(cross_entropy(slice(x[0], 0, i, i + 1), slice(targets, 0, i, i + 1)), {1}));
    return concat(losses, 0);
  });
  compare("cross_entropy_mean", 1,
          [&](const auto& x) { return reshape(cross_entropy(x[0], labels("cross_entropy_mean")), {1}); });
  compare("cross_entropy_smooth", 1, [&](const auto& x) {
    return reshape(cross_entropy(x[0], labels("cross_entropy_smooth"), {}, {.label_smoothing = 0.2}), {1});
  });
  compare("cross_entropy_z", 1, [&](const auto& x) {
    return reshape(cross_entropy(x[0], labels("cross_entropy_z"), {}, {.z_loss = 0.1}), {1});
  });
}

TEST_CASE("LSH attention equals trax and fast_transformers") {
  const SafetensorsFile file = open_golden_file("lsh");
  for (const std::string preset : {"trax", "fast_transformers"})
    for (const bool causal : {false, true}) {
      CAPTURE(preset);
      CAPTURE(causal);
      const auto read = [&](const char* key) {
        return file.read(preset + (causal ? ".causal." : ".full.") + key);
      };
      LshOptions options = make_lsh_preset(preset);
      options.rounds = 3;
      options.chunk_length = 4;
      options.buckets = 12;
      options.causal = causal;
      const Tensor q = set_requires_grad(read("q")), v = set_requires_grad(read("v"));
      const Tensor out = lsh_attention(q, v, read("buckets"), options);
      backward(out, read("cotangent"));
      // The keys are q / sqrt(|q|² + 1e-6 * dim), as in trax. fast_transformers does not add 1e-6 * dim, so
      // the bound for fast_transformers is larger.
      const double bound = preset == "trax" ? 1e-12 : 1e-5;
      CHECK(relative_difference(out, read("out")) < bound);
      CHECK(relative_difference(gradient(q), read("gq")) < bound);
      CHECK(relative_difference(gradient(v), read("gv")) < bound);
    }
}

TEST_CASE("attention of transformer-xl equals PyTorch with the published shift, in value and gradients") {
  const SafetensorsFile file = open_golden_file("transformer_xl");
  for (const auto& [memory_bound, clamp] : {std::pair<int64_t, int64_t>{0, 0}, {3, 0}, {7, 4}}) {
    const int64_t memory = memory_bound;  // clang 14 cannot capture structured bindings
    CAPTURE(memory);
    const auto read = [&, prefix = concat_text("memory_", memory, ".")](const std::string& key) {
      return file.read(prefix + key);
    };
    const std::string kind = "transformer-xl";
    const auto attention = make_attention(
        kind, find_attention_kind(kind).make_options({{"memory", memory}, {"clamp", int64_t{clamp}}}),
        {.heads = 2, .dim = 4, .max_length = 5});
    attention->convert(DType::float64);
    for (const auto& [name, parameter] : attention->parameters()) parameter.copy_from(read(name));
    const Tensor q = set_requires_grad(read("q")), k = set_requires_grad(read("k")),
                 v = set_requires_grad(read("v"));
    const Tensor out = attention->forward(q, k, v, {}, {}, "layer");
    backward(out, read("cotangent"));
    // The sinusoids of the layer are rounded to float32.
    CHECK(relative_difference(out, read("out")) < 1e-6);
    NamedTensors leaves = attention->parameters();
    for (const auto& [name, leaf] : {std::pair{"q", q}, {"k", k}, {"v", v}}) leaves.emplace_back(name, leaf);
    for (const auto& [name_bound, leaf] : leaves) {
      const auto& name = name_bound;  // clang 14 cannot capture structured bindings
      CAPTURE(name);
      CHECK(relative_difference(gradient(leaf), read("gradient." + name)) < 1e-6);
    }
  }
}

TEST_CASE("a layer of a compressive model equals PyTorch over five segments, in value and gradients") {
  constexpr int64_t kSegment = 4;
  const SafetensorsFile file = open_golden_file("compressive");
  EncoderOptions options{.layers = 1, .heads = 2, .head_dim = 4, .max_length = kSegment};
  const OptionValues values =
      find_attention_kind("compressive")
          .make_options({{"memory", int64_t{6}}, {"compressed_memory", int64_t{3}}, {"rate", int64_t{2}}});
  options.attention = {{"compressive", values}};
  MultiHeadAttention attention(options);
  attention.convert(DType::float64);
  for (const auto& [name, parameter] : attention.parameters()) parameter.copy_from(file.read(name));
  const Tensor text = file.read("text"), cotangent = file.read("cotangent");
  SegmentMemory memory(text.size(0), text);
  memory.add_layer("layer", find_attention_kind("compressive").get_segment_memory_size(values), text.size(2));
  double loss = 0;
  for (int64_t first = 0; first < text.size(1); first += kSegment) {
    const auto segment = [&](const Tensor& x) { return slice(x, 1, first, first + kSegment).clone(); };
    memory.start_segment(first);
    LossTerms terms;
    const ForwardContext context{.memory = &memory, .loss_terms = &terms};
    const Tensor out = attention.forward(segment(text), {}, {}, context, "layer", DType::float64);
    // The sinusoids of the layer are rounded to float32.
    CHECK(relative_difference(out, segment(file.read("out"))) < 1e-6);
    backward(out, segment(cotangent));
    if (!terms.sum().defined()) continue;
    backward(terms.sum());
    loss += terms.sum().item();
  }
  CHECK(loss == doctest::Approx(file.read("loss").item()).epsilon(1e-12));
  for (const auto& [name_bound, parameter] : attention.parameters()) {
    const auto& name = name_bound;
    CAPTURE(name);
    CHECK(max_difference(gradient(parameter), file.read("gradient." + name)) < 1e-5);
    if (name.find("compression") != std::string::npos)
      CHECK(relative_difference(gradient(parameter), file.read("gradient." + name)) < 1e-11);
  }
}

TEST_CASE("attention of etc equals PyTorch with all pairs of tokens, in value and gradients") {
  constexpr int64_t kLength = 23;
  const SafetensorsFile file = open_golden_file("etc");
  const Tensor lengths = file.read("lengths");
  for (const bool segment_mask : {false, true}) {
    CAPTURE(segment_mask);
    const auto read = [&](const std::string& key) {
      return file.read((segment_mask ? "segments." : "open.") + key);
    };
    const auto attention =
        make_attention("etc",
                       find_attention_kind("etc").make_options({{"global_tokens", int64_t{3}},
                                                                {"radius", int64_t{4}},
                                                                {"max_distance", int64_t{2}},
                                                                {"segment_mask", segment_mask}}),
                       {.heads = 2, .dim = 4, .max_length = kLength});
    attention->convert(DType::float64);
    for (const auto& [name, parameter] : attention->parameters()) parameter.copy_from(read(name));
    const Tensor q = set_requires_grad(read("q")), k = set_requires_grad(read("k")),
                 v = set_requires_grad(read("v"));
    const Tensor out = attention->forward(q, k, v, {.causal = false, .key_lengths = lengths}, {}, "layer");
    backward(out, read("cotangent"));
    for (int64_t b = 0; b < lengths.numel(); ++b) {
      const auto valid = [&](const Tensor& x) {
        return slice(slice(detach(x), 0, b, b + 1), 1, 0, lengths.data<int64_t>()[b]);
      };
      CHECK(max_difference(valid(out), valid(read("out"))) < 1e-13);
    }
    NamedTensors leaves = attention->parameters();
    for (const auto& [name, leaf] : {std::pair{"q", q}, {"k", k}, {"v", v}}) leaves.emplace_back(name, leaf);
    for (const auto& [name_bound, leaf] : leaves) {
      const auto& name = name_bound;
      CAPTURE(name);
      CHECK(relative_difference(gradient(leaf), read("gradient." + name)) < 1e-12);
    }
  }
}

TEST_CASE("the Set Transformer equals PyTorch in its outputs, the loss of a mixture and all gradients") {
  const SafetensorsFile file = open_golden_file("set_transformer");
  SetTransformerOptions options{.encoder = {.layers = 1, .heads = 2, .head_dim = 4, .feedforward = 6},
                                .features = 2,
                                .components = 2,
                                .decoder_layers = 1,
                                .max_length = 7};
  options.encoder.attention = {{"isab", find_attention_kind("isab").make_options(
                                            {{"inducing_points", int64_t{3}}, {"feedforward", int64_t{6}}})}};
  SetTransformer model(options);
  model.convert(DType::float64);
  for (const auto& [name, parameter] : model.parameters()) parameter.copy_from(file.read(name));
  Batch batch;
  batch.elements = file.read("elements");
  batch.lengths = file.read("lengths");
  CHECK(relative_difference(model.forward(batch.elements, batch.lengths, {}), file.read("outputs")) < 1e-12);
  const Tensor loss = model.compute_loss(batch, {});
  CHECK(loss.item() == doctest::Approx(file.read("loss").to_vector().front()).epsilon(1e-12));
  backward(loss);
  for (const auto& [name_bound, parameter] : model.parameters()) {
    const auto& name = name_bound;
    CAPTURE(name);
    const Tensor expected = file.read("gradient." + name);
    // The gradient of a key bias is 0, because a softmax does not depend on the key bias.
    if (name.ends_with("key_projection.bias"))
      CHECK(max_difference(gradient(parameter), expected) < 1e-14);
    else
      CHECK(relative_difference(gradient(parameter), expected) < 1e-10);
  }
}
