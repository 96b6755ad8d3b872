// Models with the layers of current language models: RMS norms, gated feed-forward blocks, grouped heads of
// keys, heads that do not fill the width, norms of queries and keys, partial rotations, and parallel
// branches.
#include <doctest/doctest.h>

#include <functional>

#include "core/allocator.h"
#include "core/device_control.h"
#include "models/decoder.h"
#include "models/generation.h"
#include "ops/split.h"
#include "ops/view.h"
#include "tests/models/parameter_gradients.h"
#include "tests/models/small_model.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

bool is_valid(const AutoregressiveModelOptions& options) {
  return find_option_problems(options).empty();
}

// Returns a model with four heads of 6 features in a residual stream of 10, and two heads of keys if the kind
// can have them.
AutoregressiveModelOptions modern_options(const std::string& attention) {
  AutoregressiveModelOptions options = small_options(attention, OutputHead::categorical);
  EncoderOptions& e = options.encoder;
  e.heads = 4;
  e.head_dim = 6;
  e.model_width = 10;
  e.feedforward = 7;
  e.pre_norm = true;
  e.norm = {.kind = NormKind::rms, .eps = 1e-3, .offset = true};
  e.activation = Activation::silu;
  e.gated_feedforward = true;
  e.projection_biases = e.feedforward_biases = false;
  e.rotary = true;
  e.rotary_base = 50;
  e.rotary_share = 0.7;
  options.position_kind = PositionKind::none;
  options.predictor_bias = false;
  e.kv_heads = 2;
  if (!is_valid(options)) e.kv_heads = 0;
  e.qk_norm = true;
  if (!is_valid(options)) e.qk_norm = false;
  return options;
}

// Returns variants of the layers that all kinds can have.
std::vector<std::pair<std::string, AutoregressiveModelOptions>> list_variants(const std::string& attention) {
  std::vector<std::pair<std::string, AutoregressiveModelOptions>> variants;
  const auto add = [&](const char* name, const std::function<void(AutoregressiveModelOptions&)>& change) {
    AutoregressiveModelOptions options = modern_options(attention);
    change(options);
    if (is_valid(options)) variants.emplace_back(attention + ", " + name, options);
  };
  add("modern", [](AutoregressiveModelOptions&) {});
  add("post-norm", [](AutoregressiveModelOptions& o) {
    o.encoder.pre_norm = o.encoder.norm.offset = false;
    o.encoder.activation = Activation::gelu;
  });
  add("parallel, learned positions", [](AutoregressiveModelOptions& o) {
    o.encoder.parallel_residual = true;
    o.encoder.rotary = false;
    o.encoder.norm = {.eps = 1e-3};
    o.encoder.gated_feedforward = false;
    o.encoder.activation = Activation::gelu_tanh;
    o.encoder.feedforward_biases = o.encoder.projection_biases = true;
    o.encoder.out_bias = false;
    o.position_kind = PositionKind::learned;
    o.position_count = 13;
  });
  add("reversible", [](AutoregressiveModelOptions& o) { o.encoder.reversible = true; });
  add("scaled rotary positions", [](AutoregressiveModelOptions& o) {
    o.encoder.rotary_scaling = {.kind = RotaryScalingKind::yarn, .factor = 4, .length = 8, .fast = 2};
  });
  const auto choose = [](AutoregressiveModelOptions& o,
                         const std::vector<std::pair<std::string, OptionValue>>& settings) {
    AttentionLayerChoice& choice = o.encoder.attention[0];
    choice.options = find_attention_kind(choice.kind).make_options(settings);
  };
  const bool is_gated = has_option(find_attention_kind(attention).options, "value_heads");
  if (is_gated)
    for (const int64_t key_heads : {1, 3})
      add(key_heads == 1 ? "one head of keys" : "heads of its own", [&](AutoregressiveModelOptions& o) {
        choose(o, {{"value_heads", int64_t{3}},
                   {"key_heads", key_heads},
                   {"key_dim", int64_t{5}},
                   {"value_dim", int64_t{7}},
                   {"norm_eps", 1e-3}});
      });
  if (attention == "softmax")
    add("output gate", [&](AutoregressiveModelOptions& o) {
      choose(o, {{"output_gate", std::string("sigmoid")}});
    });
  return variants;
}

double parallel_against_recurrent(const AutoregressiveModel& model, int64_t batch) {
  constexpr int64_t kLength = 11;
  const NoGradScope no_grad;
  const Tensor tokens = random_tokens(batch, kLength, 7);
  const Tensor parallel = model.forward(tokens, {});
  Decoder decoder(model, batch);
  double worst = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int64_t t = 0; t < kLength; ++t) {
      const Tensor& outputs = decoder.step(tokens.view({batch}, {kLength}, t).clone());
      worst = std::max(worst,
                       max_difference(outputs, slice(parallel, 1, t, t + 1).clone().view(outputs.shape())));
    }
    decoder.reset();
  }
  return worst;
}

// Returns the loss and the gradients of a float64 model.
std::vector<double> compute_results(const AutoregressiveModelOptions& options) {
  AutoregressiveModel model(options);
  model.initialize(3);
  model.convert(DType::float64);
  const Batch batch{random_tokens(3, 12, 7), {}, {}};
  const Tensor loss = model.compute_loss(batch, {.training = true, .seed = 5, .step = 2});
  std::vector<double> results = loss.to_vector();
  backward(loss);
  for (const auto& [name, parameter] : model.parameters())
    for (const double g : gradient(parameter).to_vector()) results.push_back(g);
  return results;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

}  // namespace

TEST_CASE("modern layers: recurrent decoding equals the parallel form for all kinds") {
  for (const std::string& attention : recurrent_kinds())
    for (const auto& [bound_name, options] : list_variants(attention)) {
      const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
      CAPTURE(name);
      AutoregressiveModel model(options);
      model.initialize(4);
      for (const int64_t batch : {1, 3}) CHECK(parallel_against_recurrent(model, batch) < 2e-5);
      set_precision(kCpu, Precision::bfloat16);
      CHECK(parallel_against_recurrent(model, 3) < 0.2);
      set_precision(kCpu, Precision::float32);
      model.convert(DType::float64);
      for (const int64_t batch : {1, 3}) CHECK(parallel_against_recurrent(model, batch) < 1e-12);
    }
}

TEST_CASE("modern layers: gradients pass the gradient check") {
  for (const std::string attention : {"softmax", "linear", "gated-delta", "lsh", "local", "synthesizer"})
    for (auto& [bound_name, options] : list_variants(attention)) {
      const std::string& name = bound_name;
      CAPTURE(name);
      options.encoder.dropout = 0.2;
      AutoregressiveModel model(options);
      model.initialize(3);
      model.convert(DType::float64);
      const Batch batch{random_tokens(2, 12, 7), {}, {}};
      StoredDecisions decisions;
      const ForwardContext context{.training = true, .seed = 5, .step = 2, .decisions = &decisions};
      check_parameter_gradients(model, [&] { return model.compute_loss(batch, context); });
    }
}

TEST_CASE("modern layers: chunks and recomputation change neither loss nor gradients") {
  for (auto& [bound_name, options] : list_variants("softmax")) {
    const std::string& name = bound_name;
    CAPTURE(name);
    options.encoder.dropout = 0.2;
    const std::vector<double> whole = compute_results(options);
    options.encoder.feedforward_chunks = 5;
    options.loss_chunks = 3;
    CHECK(difference(whole, compute_results(options)) < 1e-12);
    if (options.encoder.reversible) continue;
    options.encoder.recompute = true;
    CHECK(difference(whole, compute_results(options)) < 1e-12);
  }
}

TEST_CASE("kinds that read grouped heads give the results of repeated heads") {
  for (const AttentionKind& kind : list_attention_kinds()) {
    if (!kind.capabilities.reads_grouped_heads) continue;
    CAPTURE(kind.name);
    const auto attention = make_attention(kind.name, test_options(kind.name), {.heads = 4, .dim = 3});
    attention->initialize(1);
    const Tensor q = normal({2, 16, 4, 3}, 1), k = normal({2, 16, 2, 3}, 2), v = normal({2, 16, 2, 3}, 3);
    for (const bool causal : {false, true}) {
      const AttentionMask mask{.causal = causal, .key_lengths = {}};
      CHECK(max_difference(attention->forward(q, k, v, mask, {}, "layer"),
                           attention->forward(q, repeat_interleave(k, 2, 2), repeat_interleave(v, 2, 2), mask,
                                              {}, "layer")) < 1e-12);
    }
  }
}

TEST_CASE("the cache of softmax attention has the size of the heads of keys") {
  AutoregressiveModelOptions options = modern_options("softmax");
  AutoregressiveModel grouped(options);
  options.encoder.kv_heads = 0;
  AutoregressiveModel full(options);
  CHECK(Decoder(full, 2).state_bytes() == 2 * Decoder(grouped, 2).state_bytes());
}

TEST_CASE(
    "modern layers: a decoding step allocates no memory, and both modes of generation draw the same tokens") {
  for (const std::string& attention : recurrent_kinds()) {
    AutoregressiveModel model(modern_options(attention));
    model.initialize(1);
    Decoder decoder(model, 5);
    const Tensor tokens = Tensor::zeros({5}, DType::uint8);
    decoder.step(tokens);
    const int64_t before = get_device_allocator().stats().allocation_count;
    for (int i = 0; i < 5; ++i) decoder.step(tokens);
    CHECK(get_device_allocator().stats().allocation_count == before);
    model.convert(DType::float64);
    const Tensor prefix = random_tokens(2, 3, 7);
    CHECK(generate(model, prefix, 12, {.seed = 9}).to_vector() ==
          generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9}).to_vector());
  }
}

TEST_CASE("cuda: modern layers give the losses, gradients and tokens of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const std::string attention : {"softmax", "linear", "gated-delta"})
      for (const auto& [bound_name, options] : list_variants(attention)) {
        const std::string& name = bound_name;
        CAPTURE(name);
        AutoregressiveModel model(options);
        model.initialize(3);
        model.convert(DType::float64);
        const Tensor tokens = random_tokens(3, 12, 7), prefix = random_tokens(3, 2, 7);
        const auto run = [&](Device where) {
          const Tensor loss = model.compute_loss({tokens.to(where), {}, {}}, {.training = true});
          backward(loss);
          std::vector<double> results = loss.to_vector();
          for (const auto& [parameter_name, parameter] : model.parameters())
            for (const double g : gradient(parameter).to_vector()) results.push_back(g);
          for (const double token : generate(model, prefix, 12, {.seed = 9}).to_vector())
            results.push_back(token);
          return results;
        };
        const std::vector<double> expected = run(kCpu);
        model.move(device);
        CHECK(difference(run(device), expected) < 1e-10);
      }
}

TEST_CASE("contradictions of the layers are errors that name the option") {
  const auto problem_of = [](const std::string& attention,
                             const std::function<void(EncoderOptions&)>& change) {
    AutoregressiveModelOptions options = small_options(attention);
    options.encoder.pre_norm = true;
    change(options.encoder);
    const auto problems = find_option_problems(options);
    REQUIRE(problems.size() == 1);
    return problems[0].option + ": " + problems[0].message;
  };
  CHECK(problem_of("softmax", [](EncoderOptions& e) { e.kv_heads = 3; }) ==
        "kv_heads: expected a divisor of heads = 2, got 3");
  CHECK(problem_of("lsh", [](EncoderOptions& e) { e.kv_heads = 1; }) ==
        "kv_heads: attention kind \"lsh\" has no support for fewer heads of keys: queries are used as keys");
  CHECK(problem_of("compressive", [](EncoderOptions& e) { e.qk_norm = true; }) ==
        "qk_norm: attention kind \"compressive\" has no support for norms of queries and keys: it projects "
        "compressed inputs itself");
  CHECK(problem_of("softmax", [](EncoderOptions& e) { e.norm.offset = true; }) ==
        "norm_offset: only RMS norms have an offset: expected false");
  CHECK(problem_of("softmax", [](EncoderOptions& e) {
          e.parallel_residual = true;
          e.pre_norm = false;
        }) == "norm: parallel branches require pre-norm: expected \"pre\"");
  CHECK(problem_of("softmax", [](EncoderOptions& e) { e.parallel_residual = e.reversible = true; }) ==
        "parallel_residual: the branches of reversible layers alternate: expected false");
}
