#include <doctest/doctest.h>

#include <cmath>

#include "models/attention/kinds/gated/options.h"
#include "models/layers/option_error.h"
#include "tests/attention/kind_tests.h"
#include "tests/models/segments.h"
#include "tests/support/devices.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using GatedSettings = std::vector<std::pair<std::string, OptionValue>>;

struct GatedChoice {
  const char* kind;
  GatedSettings settings;
};

// All presets, and other combinations of options.
std::vector<GatedChoice> list_gated_choices() {
  const auto text = [](const char* value) { return std::string(value); };
  return {
      {"gated-linear", {{"preset", text("mamba2")}}},
      {"gated-linear", {{"preset", text("gla")}}},
      {"gated-linear", {{"preset", text("retnet")}}},
      {"gated-linear", {{"preset", text("lightning")}}},
      {"gated-linear", {{"decay", text("head")}, {"output_norm", text("none")}, {"preset", text("gla")}}},
      {"gated-linear", {{"decay", text("channel")}, {"output_gate", text("none")}}},
      {"gated-delta", {{"preset", text("gated-delta-net")}}},
      {"gated-delta", {{"preset", text("delta-net")}}},
      {"gated-delta", {{"preset", text("kda")}}},
      {"gated-delta", {{"negative_eigenvalues", true}, {"output_norm", text("none")}}},
      {"gated-delta", {{"decay", text("channel")}, {"decay_lower_bound", -5.0}, {"gate_rank", int64_t{3}}}},
      {"gated-delta", {{"qk_norm", text("none")}, {"output_norm", text("width")}, {"conv", int64_t{0}}}}};
}

}  // namespace

TEST_CASE("gated linear attention: every preset passes the tests of attention kinds") {
  for (const GatedChoice& choice : list_gated_choices()) {
    const AttentionKind& kind = find_attention_kind(choice.kind);
    CAPTURE(choice.kind);
    if (!choice.settings.empty()) CAPTURE(choice.settings.front().first);
    for (const AttentionTestResult& result :
         run_attention_tests(kind, kind.make_options(choice.settings), {.length = 9, .heads = 2, .dim = 4})) {
      CAPTURE(result.name);
      CHECK(result.failure == "");
    }
  }
}

TEST_CASE("gated linear attention: segments with carried states equal one pass") {
  const Tensor tokens = random_tokens(2, kText, 2 * kText);
  for (GatedChoice choice : list_gated_choices()) {
    CAPTURE(choice.kind);
    choice.settings.emplace_back("carry_state", true);
    const auto model = segment_model(segment_options(choice.kind, choice.settings));
    const NoGradScope no_grad;
    CHECK(max_difference(by_segments(*model, tokens), model->forward(tokens, {})) < 1e-12);
    choice.settings.back().second = false;
    CHECK(segment_model(segment_options(choice.kind, choice.settings))->encoder.make_segment_memory(1) ==
          nullptr);
  }
}

TEST_CASE("gated linear attention: states are carried in bfloat16 and next to a memory of inputs") {
  const Tensor tokens = random_tokens(2, kText, 2 * kText);
  AutoregressiveModelOptions options = segment_options("gated-delta", {{"carry_state", true}});
  const AttentionKind& xl = find_attention_kind("transformer-xl");
  options.encoder.attention.push_back({"transformer-xl", xl.make_options({{"memory", kText}})});
  options.encoder.layers = 2;
  const auto model = segment_model(options);
  {
    const NoGradScope no_grad;
    CHECK(max_difference(by_segments(*model, tokens), model->forward(tokens, {})) < 1e-12);
  }
  model->convert(DType::float32);
  const Bfloat16Scope precision(kCpu);
  const NoGradScope no_grad;
  CHECK(max_difference(by_segments(*model, tokens), model->forward(tokens, {})) < 0.1);
}

TEST_CASE("the convolution of a kind initially changes nothing") {
  const Tensor tokens = random_tokens(2, kText, 2 * kText);
  const NoGradScope no_grad;
  for (const char* kind : {"softmax", "linear", "shared-softmax"}) {
    const Tensor without = segment_model(segment_options(kind, {}))->forward(tokens, {});
    const auto model = segment_model(segment_options(kind, {{"conv", int64_t{3}}}));
    CHECK(max_difference(model->forward(tokens, {}), without) < 1e-12);
    for (const auto& [name, parameter] : model->parameters())
      if (name.ends_with("conv.weight")) parameter.copy_from(normal(parameter.shape(), 7));
    CHECK(max_difference(model->forward(tokens, {}), without) > 1e-3);
  }
}

TEST_CASE("gated linear attention: fixed decays are those of RetNet and Lightning Attention") {
  for (const auto& [preset, expected] :
       {std::pair("retnet", std::vector{std::log(1 - 1.0 / 32), std::log(1 - 1.0 / 64)}),
        std::pair("lightning", std::vector{-std::exp2(-4) * 2 / 3, -std::exp2(-8) * 2 / 3})}) {
    const AttentionKind& kind = find_attention_kind("gated-linear");
    const auto attention = kind.make(kind.make_options({{"preset", std::string(preset)}}),
                                     {.heads = 2, .dim = 4, .layer = 1, .layers = 4});
    const NamedTensors buffers = attention->buffers();
    REQUIRE(buffers.size() == 1);
    for (size_t h = 0; h < 2; ++h)
      CHECK(buffers[0].second.to_vector()[h] == doctest::Approx(expected[h]).epsilon(1e-6));
  }
}

TEST_CASE("gated linear attention: initial decays and time steps are those of Gated DeltaNet") {
  const AttentionKind& kind = find_attention_kind("gated-delta");
  const auto attention = kind.make(kind.default_options(), {.heads = 64, .dim = 2});
  attention->initialize(1);
  for (const auto& [name, parameter] : attention->parameters())
    for (const double value : parameter.to_vector()) {
      if (name == "gates.log_rate") CHECK(value < std::log(16.0));
      if (name != "gates.time_step") continue;
      const double step = std::log1p(std::exp(value));
      CHECK(step > 0.00099);
      CHECK(step < 0.101);
    }
}

TEST_CASE("gated linear attention: a rate above the range of float32 gives finite results") {
  for (const GatedSettings& settings : {GatedSettings{},
                                        {{"decay", std::string("channel")}},
                                        {{"decay", std::string("channel")}, {"decay_lower_bound", -5.0}}}) {
    const AttentionKind& kind = find_attention_kind("gated-delta");
    const auto attention = kind.make(kind.make_options(settings), {.heads = 2, .dim = 4});
    attention->initialize(1);
    for (const auto& [name, parameter] : attention->parameters()) {
      if (name.ends_with("log_rate")) detach(parameter).fill(100);
      if (name.ends_with("time_step")) detach(parameter).fill(-200);  // softplus is 0 in float32
    }
    const Tensor x = normal({1, 5, 8}, 1, DType::float32), heads = reshape(x, {1, 5, 2, 4});
    const Tensor out = attention->forward_with_input(x, heads, heads, heads, {}, {}, "");
    for (const double value : out.to_vector()) CHECK(std::isfinite(value));
    const auto state = attention->make_state({1, 2, 4, 4, 5, DType::float32, kCpu});
    const Tensor first = reshape(slice(heads, 1, 0, 1), {1, 2, 4});
    const Tensor token = Tensor::empty_like(first);
    attention->observe_input(reshape(slice(x, 1, 0, 1), {1, 8}), *state);
    attention->step(first.clone(), first.clone(), first, *state, token);
    CHECK(max_difference(token, reshape(slice(out, 1, 0, 1), {1, 2, 4})) < 1e-6);
  }
}

TEST_CASE("gated linear attention: options without effect are errors") {
  const AttentionKind& kind = find_attention_kind("gated-delta");
  const auto fails = [&](const GatedSettings& settings, const std::string& text) {
    try {
      make_attention("gated-delta", kind.make_options(settings), {.heads = 2, .dim = 4});
      FAIL_CHECK("expected an error");
    } catch (const OptionError& error) {
      CHECK(std::string(error.what()).find(text) != std::string::npos);
    }
  };
  fails({{"decay_rank", int64_t{4}}}, "decay_rank: has an effect only with a decay of channels");
  fails({{"decay_rank", int64_t{4}}, {"decay", std::string("head")}}, "decay_rank: has an effect only if");
  fails({{"decay_lower_bound", -5.0}}, "decay_lower_bound: has an effect only with a decay of channels");
  fails({{"gate_rank", int64_t{4}}, {"output_gate", std::string("none")}},
        "gate_rank: has an effect only if");
  fails({{"gate_rank", int64_t{4}}, {"preset", std::string("delta-net")}}, "only with an output gate");
  CHECK(read_gated_linear_options(
            kind.make_options({{"preset", std::string("kda")}, {"decay_lower_bound", -5.0}}), true)
            .decay == DecayForm::bounded);
}
