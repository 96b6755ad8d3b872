#include <doctest/doctest.h>

#include "models/generation.h"
#include "ops/lsh_attention.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::unique_ptr<Attention> make_lsh(const std::vector<std::pair<std::string, OptionValue>>& options) {
  return make_attention("lsh", find_attention_kind("lsh").make_options(options));
}

const Tensor kQ = normal({2, 40, 2, 6}, 1), kV = normal({2, 40, 2, 6}, 2);

Tensor run(const Attention& attention, const ForwardContext& context, const std::string& name = "layers.0",
           const Tensor& q = kQ) {
  return attention.forward(q, q, kV, {.causal = true, .key_lengths = {}}, context, name);
}

AutoregressiveModelOptions lsh_options(int64_t chunk_length) {
  AutoregressiveModelOptions options = small_options("lsh");
  options.encoder.attention.front().options.set("chunk_length", chunk_length);
  return options;
}

}  // namespace

TEST_CASE("lsh: training draws new rotations in every step, and evaluation uses the same in every step") {
  const auto lsh = make_lsh({{"chunk_length", int64_t{4}}});
  const Tensor first = run(*lsh, {.training = true, .seed = 1, .step = 1});
  CHECK(max_difference(first, run(*lsh, {.training = true, .seed = 1, .step = 1})) == 0);
  CHECK(max_difference(first, run(*lsh, {.training = true, .seed = 1, .step = 2})) > 0);
  CHECK(max_difference(first, run(*lsh, {.training = true, .seed = 2, .step = 1})) > 0);
  CHECK(max_difference(first, run(*lsh, {.training = true, .seed = 1, .step = 1}, "layers.1")) > 0);
  CHECK(max_difference(first, run(*lsh, {.training = true, .disable_dropout = true, .seed = 1, .step = 1})) ==
        0);
  const Tensor evaluated = run(*lsh, {.seed = 1, .step = 1});
  CHECK(max_difference(evaluated, run(*lsh, {.seed = 1, .step = 2})) == 0);
}

TEST_CASE("lsh: the evaluation of a sequence does not depend on its batch") {
  const auto lsh = make_lsh({{"chunk_length", int64_t{4}}});
  const Tensor both = run(*lsh, {});
  const Tensor q = contiguous(slice(kQ, 0, 1, 2)), v = contiguous(slice(kV, 0, 1, 2));
  const Tensor alone = lsh->forward(q, q, v, {.causal = true, .key_lengths = {}}, {}, "layers.0");
  CHECK(max_difference(contiguous(slice(both, 0, 1, 2)), alone) == 0);
}

TEST_CASE("lsh: chunks of one to three positions have at most as many buckets as positions") {
  for (const int64_t chunk : {1, 2, 3})
    for (const int64_t length : {2, 3, 7, 40, 128, 129, 1000}) {
      const LshOptions options{.chunk_length = chunk};
      const int64_t buckets = count_lsh_buckets(options, length);
      CHECK(buckets <= length);
      CHECK(buckets >= (length <= chunk ? 1 : 2));
      const auto ids =
          compute_lsh_buckets(normal({1, length, 2, 6}, 1), options, RandomStream(1, "h")).to_vector();
      CHECK(*std::max_element(ids.begin(), ids.end()) < static_cast<double>(buckets));
    }
  CHECK(count_lsh_buckets({.chunk_length = 16}, 1024) == 128);
  CHECK(count_lsh_buckets({.chunk_length = 16}, 2048) == 256);
}

TEST_CASE("lsh: a replay uses the buckets of the first pass although its inputs differ") {
  const auto lsh = make_lsh({{"chunk_length", int64_t{4}}});
  StoredDecisions decisions;
  const ForwardContext context{.training = true, .seed = 1, .step = 1, .decisions = &decisions};
  run(*lsh, context);
  CHECK(decisions.bytes() == 2 * 2 * 4 * 40 * 4);
  const Tensor moved = normal({2, 40, 2, 6}, 9);
  const LshOptions options{.chunk_length = 4, .causal = true};
  const Tensor kept = compute_lsh_buckets(kQ, options, RandomStream(1, "layers.0.rotations", 1));
  CHECK(max_difference(run(*lsh, context, "layers.0", moved), lsh_attention(moved, kV, kept, options)) == 0);
  const ForwardContext without_decisions{.training = true, .seed = 1, .step = 1};
  CHECK(max_difference(run(*lsh, without_decisions, "layers.0", moved),
                       lsh_attention(moved, kV, kept, options)) > 0);
}

TEST_CASE("lsh: a preset sets the options that are not given") {
  const ForwardContext context{.training = true, .seed = 1, .step = 1};
  auto expected = [&](LshOptions options) {
    options.causal = true;
    const Tensor buckets = compute_lsh_buckets(kQ, options, RandomStream(1, "layers.0.rotations", 1));
    return lsh_attention(kQ, kV, buckets, options);
  };
  for (const char* const name : {"reformer", "trax", "fast_transformers"}) {
    LshOptions options = make_lsh_preset(name);
    options.rounds = 2;
    options.chunk_length = 5;
    options.buckets = 10;
    const std::vector<std::pair<std::string, OptionValue>> set = {{"preset", std::string(name)},
                                                                  {"rounds", int64_t{2}},
                                                                  {"chunk_length", int64_t{5}},
                                                                  {"buckets", int64_t{10}}};
    const Tensor plain = expected(options);
    CHECK(max_difference(run(*make_lsh(set), context), plain) == 0);
    auto with = [&](const char* option, const char* value) {
      auto extended = set;
      extended.emplace_back(option, std::string(value));
      return run(*make_lsh(extended), context);
    };
    options.wrap = LshOptions::Wrap::round;
    CHECK(max_difference(with("wrap", "round"), expected(options)) == 0);
    options = make_lsh_preset(name);
    options.rounds = 2;
    options.chunk_length = 5;
    options.buckets = 10;
    options.across_buckets = !options.across_buckets;
    const Tensor other = with("across_buckets", options.across_buckets ? "yes" : "no");
    CHECK(max_difference(other, expected(options)) == 0);
    CHECK(max_difference(other, plain) > 1e-3);
  }
}

TEST_CASE("lsh: duplicates = exact does not work with combine = mean") {
  const std::pair<std::string, OptionValue> mean = {"combine", std::string("mean")};
  CHECK_THROWS_WITH_AS(make_lsh({{"duplicates", std::string("exact")}, mean}),
                       "attention_options.duplicates: \"exact\" is not supported with combine = \"mean\"",
                       OptionError);
  CHECK_THROWS_WITH_AS(
      make_lsh({{"duplicates", std::string("exact")}, {"preset", std::string("fast_transformers")}}),
      "attention_options.duplicates: \"exact\" is not supported with combine = \"mean\" of the preset",
      OptionError);
  make_lsh({{"preset", std::string("reformer")}, mean});
}

TEST_CASE("lsh: invalid numbers of buckets are errors, but prefixes may be shorter than this number") {
  CHECK_THROWS_WITH_AS(make_lsh({{"buckets", int64_t{7}}}),
                       "attention_options.buckets: expected an even number, got 7", OptionError);
  const auto lsh = make_lsh({{"chunk_length", int64_t{4}}, {"buckets", int64_t{64}}});
  for (const bool training : {false, true})
    CHECK_THROWS_WITH_AS(run(*lsh, {.training = training}),
                         doctest::Contains("64 buckets are more than the 40 positions"), ShapeError);
  for (const int64_t length : {1, 3, 4, 5, 6, 40}) {
    const Tensor x = normal({1, length, 1, 6}, 1);
    CHECK(
        lsh->forward(x, x, x, {.causal = true, .key_lengths = {}}, {.is_prefix = true}, "layers.0").shape() ==
        x.shape());
  }
}

TEST_CASE("lsh: the model has no key projection and generates in mode recompute") {
  AutoregressiveModel model(lsh_options(3));
  model.initialize(1);
  for (const auto& [name, parameter] : model.parameters())
    CHECK(name.find("key_projection") == std::string::npos);
  const Tensor prefix = random_tokens(2, 3, 256);
  const Tensor images = generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9});
  CHECK(images.shape() == Shape{2, 12});
  CHECK(images.to_vector() ==
        generate(model, prefix, 12, {.mode = GenerationMode::recompute, .seed = 9}).to_vector());
  CHECK_THROWS_WITH(generate(model, prefix, 12, {.seed = 9}),
                    doctest::Contains("attention kind \"lsh\" has no recurrent form: a new token"));
}

TEST_CASE("lsh: chunks and buckets that do not suit the length of the model are errors") {
  auto make = [](int64_t chunk_length, int64_t buckets) {
    AutoregressiveModelOptions options = lsh_options(chunk_length);
    options.encoder.attention.front().options.set("buckets", buckets);
    const AutoregressiveModel model(options);
  };
  const int64_t length = lsh_options(4).max_length;
  make(length, 0);
  make(4, length / 2 * 2);
  CHECK_THROWS_WITH_AS(make(length + 1, 0),
                       doctest::Contains("chunk_length: expected at most the length of the sequences, 11"),
                       OptionError);
  CHECK_THROWS_WITH_AS(make(4, length / 2 * 2 + 2), doctest::Contains("buckets are more than the"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(make(length, 4), doctest::Contains("fits in one chunk"), ConfigError);
  CHECK_THROWS_WITH_AS(
      make(0, -1),
      doctest::Contains("chunk_length: expected at most the length of the sequences, 11, got 64"),
      OptionError);  // the preset sets chunk_length = 64
  AutoregressiveModelOptions options = lsh_options(4);
  options.max_length = 500;
  options.encoder.attention.front().options.set("buckets", int64_t{130});
  CHECK_THROWS_WITH_AS(AutoregressiveModel{options}, doctest::Contains("use 132 buckets or hyperplanes"),
                       ConfigError);
  options.encoder.attention.front().options.set("hash", std::string("hyperplanes"));
  CHECK_NOTHROW(AutoregressiveModel{options});
  // The preset fast_transformers sets buckets = 64, which is an error because the model has fewer positions.
  // With buckets = 0, the number of buckets is derived from the length, which is not an error.
  options = lsh_options(4);
  options.encoder.attention.front().options.set("preset", std::string("fast_transformers"));
  CHECK_THROWS_AS(AutoregressiveModel{options}, ConfigError);
  options.encoder.attention.front().options.set("buckets", int64_t{0});
  CHECK_NOTHROW(AutoregressiveModel{options});
}
