// Tests of models whose layers have different attention kinds.
#include "models/attention/pattern.h"

#include <doctest/doctest.h>

#include "models/generation.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

AutoregressiveModelOptions pattern_options(const std::vector<std::string>& kinds) {
  AutoregressiveModelOptions options = small_options("linear");
  options.encoder.layers = 3;
  options.encoder.attention.clear();
  for (const std::string& kind : kinds) options.encoder.attention.push_back({kind, test_options(kind)});
  return options;
}

}  // namespace

TEST_CASE("a pattern repeats over the layers, and each layer has the parameters of its kind") {
  const AutoregressiveModel model(pattern_options({"lsh", "softmax"}));
  std::vector<bool> has_key;
  // Softmax attention projects queries, keys and values. LSH attention projects no keys.
  for (const auto& layer : model.encoder.layers)
    has_key.push_back(layer->attention.projections().size() == 3);
  CHECK(has_key == std::vector<bool>{false, true, false});
  CHECK(join_kind_names(model.options().encoder.attention) == "lsh, softmax");
  CHECK(supports(model.options().encoder.attention, &AttentionCapabilities::causal));
  CHECK_FALSE(supports(model.options().encoder.attention, &AttentionCapabilities::has_constant_size_state));
}

TEST_CASE("a pattern lacks a capability if one kind lacks it, and the message names layer and kind") {
  const AttentionPattern pattern = pattern_options({"softmax", "linear", "lsh"}).encoder.attention;
  CHECK(describe_unsupported(pattern, "recurrent form", &AttentionCapabilities::recurrent) ==
        "layer 2: attention kind \"lsh\" has no recurrent form: a new token may move earlier tokens to other "
        "chunks");
  CHECK(describe_unsupported(pattern, "dropout of weights", &AttentionCapabilities::weight_dropout)
            .starts_with("layer 1: attention kind \"linear\" has no dropout of weights: "));
  CHECK(describe_unsupported(pattern, "causal form", &AttentionCapabilities::causal).empty());
  const AttentionPattern single = pattern_options({"lsh"}).encoder.attention;
  CHECK(describe_unsupported(single, "recurrent form", &AttentionCapabilities::recurrent)
            .starts_with("attention kind \"lsh\""));
}

TEST_CASE("a pattern is refused if it is empty, longer than the layers, or has an invalid option") {
  CHECK_THROWS_WITH_AS(
      AutoregressiveModel(pattern_options({})),
      "attention: expected a kind, or a list of 1 to 3 kinds that repeats over the layers, got 0",
      OptionError);
  CHECK_THROWS_WITH_AS(
      AutoregressiveModel(pattern_options({"linear", "linear", "lsh", "linear"})),
      "attention: expected a kind, or a list of 1 to 3 kinds that repeats over the layers, got 4",
      OptionError);
  AutoregressiveModelOptions options = pattern_options({"linear", "lsh"});
  options.encoder.attention[1].options.set("buckets", int64_t{7});
  CHECK_THROWS_WITH_AS(AutoregressiveModel{options},
                       "attention_options.lsh.buckets: expected an even number, got 7", OptionError);
  options.encoder.attention[1] = {"transformer-xl",
                                  find_attention_kind("transformer-xl").make_options({{"conv", int64_t{4}}})};
  options.position_kind = PositionKind::none;
  CHECK_THROWS_WITH_AS(AutoregressiveModel{options},
                       "attention_options.transformer-xl.conv: expected 0, because the keys of earlier "
                       "segments have no convolution",
                       OptionError);
}

TEST_CASE("decoding of a model with softmax and linear layers equals its parallel form") {
  for (const bool rotates : {false, true})
    for (const bool reversible : {false, true}) {
      AutoregressiveModelOptions options = pattern_options({"softmax", "linear"});
      options.encoder.pre_norm = options.encoder.reversible = reversible;
      options.encoder.rotary = rotates;
      if (rotates) options.position_kind = PositionKind::none;
      AutoregressiveModel model(options);
      model.initialize(4);
      model.convert(DType::float64);
      const Tensor prefix = random_tokens(3, 2, 256);
      const Tensor recurrent = generate(model, prefix, 12, {.seed = 9});
      const Tensor recompute = generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9});
      CHECK(recurrent.to_vector() == recompute.to_vector());
    }
}

TEST_CASE("rotary positions need an even head_dim and value embeddings of the full width") {
  AutoregressiveModelOptions options = small_options("softmax");
  options.encoder.rotary = true;
  options.position_kind = PositionKind::none;
  CHECK(AutoregressiveModel(options).value_embedding.weight.size(1) == options.encoder.width());
  options.value_embedding_dim = 4;
  CHECK_THROWS_WITH_AS(AutoregressiveModel{options},
                       doctest::Contains("value_dim: only sinusoidal and grid positions share the width"),
                       OptionError);
  options.value_embedding_dim = 0;
  options.encoder.head_dim = 3;
  CHECK_THROWS_WITH_AS(AutoregressiveModel{options},
                       "head_dim: rotary positions rotate pairs of features: expected an even number, got 3",
                       OptionError);
}
