// Tests of the registry of attention kinds, and of rules that every registered kind follows.
#include <doctest/doctest.h>

#include "models/autoregressive_model.h"
#include "models/encoder/encoder_layer.h"
#include "models/layers/option_error.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<const AttentionKind*> built_in_kinds() {
  std::vector<const AttentionKind*> kinds;
  for (const AttentionKind& kind : list_attention_kinds())
    if (!kind.name.starts_with("test-")) kinds.push_back(&kind);
  return kinds;
}

AttentionKind find_copy(const std::string& original, const std::string& name) {
  AttentionKind kind = find_attention_kind(original);
  kind.name = name;
  return kind;
}

// An attention kind whose forward() returns a wrong result: an undefined tensor, or a tensor whose head and
// token dimensions are exchanged.
class WrongResult final : public Attention {
 public:
  explicit WrongResult(bool undefined) : undefined_(undefined) {}
  Tensor forward(const Tensor&, const Tensor&, const Tensor& v, const AttentionMask&, const ForwardContext&,
                 const std::string&) const override {
    return undefined_ ? Tensor() : permute(v, {0, 2, 1, 3});
  }

 private:
  bool undefined_;
};

// Creates a layer of this kind and runs its forward pass. Returns the error message if one of these steps
// throws, and "" otherwise.
std::string layer_error(const std::string& kind) {
  EncoderOptions options;
  options.attention = {{kind, find_attention_kind(kind).default_options()}};
  options.heads = 2;
  options.head_dim = 4;
  const Tensor x = Tensor::zeros({1, 3, 8});
  try {
    const MultiHeadAttention layer(options);
    layer.forward(x, {}, {}, {}, "layers.0", x.dtype());
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string problem_of(AttentionKind kind) {
  try {
    register_attention_kind(std::move(kind));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("attention kinds give a reason for every missing capability") {
  for (const AttentionKind* kind : built_in_kinds()) {
    CAPTURE(kind->name);
    const AttentionCapabilities& c = kind->capabilities;
    for (const Capability* capability : {&c.causal, &c.length_masks, &c.unequal_lengths, &c.recurrent,
                                         &c.weight_dropout, &c.bfloat16, &c.reversible}) {
      CHECK(capability->reason().empty() == static_cast<bool>(*capability));
      CHECK(capability->reason() != Capability(false).reason());
      CHECK(!capability->reason().ends_with("."));
    }
  }
}

TEST_CASE("the cost of attention kinds is linear in the length, quadratic, or a sum of both") {
  for (const AttentionKind* kind : built_in_kinds()) {
    CAPTURE(kind->name);
    REQUIRE(kind->count_multiply_adds);
    const OptionValues options = kind->default_options();
    const double ratio =
        kind->count_multiply_adds(options, {8192, 32}) / kind->count_multiply_adds(options, {4096, 32});
    CHECK(ratio >= 2);
    CHECK(ratio <= 4);
  }
  const auto cost = [](const std::string& name, const OptionValues& options, int64_t length) {
    return find_attention_kind(name).count_multiply_adds(options, {length, 32});
  };
  CHECK(cost("softmax", {}, 1024) == 2.0 * 32 * 512 * 1024);
  CHECK(cost("linear", {}, 1024) == 2.0 * 32 * 32 * 1024);
  const OptionValues sparse = find_attention_kind("sparse").default_options();
  // On average, a query attends to 64.5 of the 128 tokens in its own block. It also attends to the last 32
  // tokens of each earlier block, of which there are 15.5 on average.
  CHECK(cost("sparse", sparse, 4096) == 2.0 * 32 * (64.5 + 15.5 * 32) * 4096);
  const OptionValues local = find_attention_kind("local").default_options();
  CHECK(cost("local", local, 1024) == 2.0 * 32 * (256 * 1024 - 255 * 128));
  const OptionValues column = find_attention_kind("axial-column").default_options();
  CHECK(cost("axial-column", column, 1024) == 2.0 * 32 * (32 + 1) / 2 * 1024);
  const OptionValues split = find_attention_kind("sparse").make_options({{"heads", std::string("split")}});
  CHECK(cost("sparse", split, 4096) == 2.0 * 32 * (64.5 + 15.5 * 32 + 4.125) / 2 * 4096);
  const OptionValues lsh =
      find_attention_kind("lsh").make_options({{"rounds", int64_t{2}}, {"chunk_length", int64_t{64}}});
  CHECK(cost("lsh", lsh, 1024) == 2.0 * 32 * (2 * 96) * 1024);
  CHECK(cost("lsh", lsh, 64) == cost("softmax", {}, 64));  // a sequence of one chunk uses exact attention
}

TEST_CASE("attention kinds without the capability unequal_lengths refuse different lengths") {
  const Tensor q = normal({2, 5, 2, 4}, 1), k = normal({2, 9, 2, 4}, 2), v = normal({2, 9, 2, 4}, 3),
               x = normal({2, 5, 8}, 4);
  const AttentionMask mask{.causal = false, .key_lengths = {}};
  for (const AttentionKind* kind : built_in_kinds()) {
    if (kind->capabilities.unequal_lengths) continue;
    CAPTURE(kind->name);
    const auto attention = make_short_attention(kind->name);
    CHECK_THROWS_AS(attention->forward_with_input(x, q, k, v, mask, {}, "layer"), ShapeError);
  }
}

TEST_CASE("attention kinds without weight dropout refuse it") {
  for (const AttentionKind* kind : built_in_kinds()) {
    CAPTURE(kind->name);
    const auto make = [&] { return make_short_attention(kind->name, 0.1); };
    if (kind->capabilities.weight_dropout)
      CHECK_NOTHROW(make());
    else
      CHECK_THROWS_WITH_AS(make(), doctest::Contains("attention_dropout: attention kind"), OptionError);
  }
}

TEST_CASE("make_state() and step() of a kind without a recurrent form throw") {
  const Tensor x = normal({1, 2, 4}, 1);
  const AttentionStateOptions shape{1, 2, 4, 4, 8, DType::float64, kCpu};
  for (const AttentionKind* kind : built_in_kinds()) {
    const auto attention = make_short_attention(kind->name);
    if (kind->capabilities.recurrent)
      CHECK(attention->make_state(shape)->bytes() > 0);
    else
      CHECK_THROWS_AS(attention->make_state(shape), std::invalid_argument);
  }
}

TEST_CASE("the feature map of linear attention is an option") {
  const Tensor q = normal({2, 7, 2, 4}, 1), k = normal({2, 7, 2, 4}, 2), v = normal({2, 7, 2, 4}, 3);
  const AttentionKind& linear = find_attention_kind("linear");
  const auto run = [&](const OptionValues& options) {
    const auto attention = make_attention("linear", options, {.heads = 2, .dim = 4});
    attention->convert(DType::float64);
    return attention->forward(q, k, v, {}, {}, "layer");
  };
  const Tensor by_default = run(linear.default_options());
  for (const OptionSpec& option : linear.options) {
    if (option.name != "feature_map") continue;
    for (const std::string& map : option.choices) {
      CAPTURE(map);
      const double difference = max_difference(by_default, run(linear.make_options({{"feature_map", map}})));
      CHECK((difference == 0) == (map == "elu_plus_one"));
    }
  }
}

TEST_CASE("register_attention_kind() adds a kind that models can use") {
  const AttentionKind& first = list_attention_kinds().front();
  CHECK(problem_of(find_copy("linear", "test-copy")) == "");
  CHECK(&first == &list_attention_kinds().front());
  CHECK(find_attention_kind("test-copy").name == "test-copy");
  CHECK_THROWS_WITH_AS(find_attention_kind("test-cpy"), doctest::Contains("did you mean \"test-copy\"?"),
                       ConfigError);
}

TEST_CASE("register_attention_kind() refuses invalid kinds") {
  CHECK(problem_of(find_copy("linear", "linear")) ==
        "attention kind \"linear\": the name is already registered");
  CHECK(problem_of(find_copy("linear", "")) == "attention kind \"\": the name is empty");
  AttentionKind kind = find_copy("linear", "test-invalid");
  kind.make = nullptr;
  CHECK(problem_of(kind) == "attention kind \"test-invalid\": `make` is empty");
  kind = find_copy("linear", "test-invalid");
  kind.options.push_back(kind.options.front());
  CHECK(problem_of(kind) == "attention kind \"test-invalid\": two options are named \"feature_map\"");
  kind.options.back().name = "";
  CHECK(problem_of(kind) == "attention kind \"test-invalid\": an option has no name");
  CHECK_THROWS_AS(find_attention_kind("test-invalid"), ConfigError);
}

TEST_CASE("a default value that its option refuses makes a kind invalid") {
  AttentionKind kind = find_copy("linear", "test-invalid");
  kind.options = {{.name = "window", .default_value = int64_t{16}, .help = "", .min = 20}};
  CHECK(problem_of(kind) ==
        "attention kind \"test-invalid\": the default value of option \"window\" is not valid");
  kind.options = {{.name = "form", .default_value = std::string("a"), .help = "", .choices = {"b"}}};
  CHECK(problem_of(kind) ==
        "attention kind \"test-invalid\": the default value of option \"form\" is not valid");
  kind.options = {{.name = "shares", .default_value = std::vector<double>{0.5, 2}, .help = "", .max = 1}};
  CHECK(problem_of(kind) ==
        "attention kind \"test-invalid\": the default value of option \"shares\" is not valid");
}

TEST_CASE("results of attention kinds that do not have the shape of the values are refused") {
  AttentionKind kind = find_copy("linear", "test-permuted");
  kind.make = [](const OptionValues&, const AttentionSetup&) { return std::make_unique<WrongResult>(false); };
  CHECK(problem_of(kind) == "");
  CHECK(layer_error("test-permuted") ==
        "layers.0: the attention kind must return (1, 3, 2, 4) float32, not (1, 2, 3, 4) float32");
  kind.name = "test-undefined";
  kind.make = [](const OptionValues&, const AttentionSetup&) { return std::make_unique<WrongResult>(true); };
  CHECK(problem_of(kind) == "");
  CHECK(layer_error("test-undefined") == "layers.0: the attention kind returned an undefined tensor");
  kind.name = "test-null";
  kind.make = [](const OptionValues&, const AttentionSetup&) { return nullptr; };
  CHECK(problem_of(kind) == "");
  CHECK(layer_error("test-null") == "attention kind \"test-null\": `make` returned no attention");
}

TEST_CASE("reading an undeclared option, or an option of another type, is an error with its name") {
  const OptionValues values = find_attention_kind("linear").default_options();
  CHECK_THROWS_WITH_AS(values.get<double>("ep"), "option \"ep\" is not declared", std::invalid_argument);
  CHECK_THROWS_WITH_AS(values.get<bool>("eps"), "option \"eps\" is declared with another type",
                       std::invalid_argument);
}

TEST_CASE("values() replaces defaults and refuses unknown options and wrong types") {
  const AttentionKind& linear = find_attention_kind("linear");
  CHECK(linear.make_options({{"eps", 0.5}}).get<double>("eps") == 0.5);
  CHECK_THROWS_WITH_AS(linear.make_options({{"epsilon", 0.5}}), "epsilon: unknown option", OptionError);
  CHECK_THROWS_WITH_AS(linear.make_options({{"eps", int64_t{1}}}), "eps: wrong type", OptionError);
}

TEST_CASE("options that the chosen form or kernel does not use are errors") {
  const auto error = [](const std::string& kind,
                        const std::vector<std::pair<std::string, OptionValue>>& options) {
    return message_of<OptionError>(
        [&] { make_attention(kind, find_attention_kind(kind).make_options(options)); });
  };
  CHECK(error("local", {{"blocks_back", int64_t{2}}}) ==
        "attention_options.blocks_back: has an effect only if form = \"blocks\"");
  CHECK(error("local", {{"blocks_back", int64_t{2}}, {"form", std::string("blocks")}}).empty());
  CHECK(error("performer", {{"relu_offset", 0.5}}) ==
        "attention_options.relu_offset: has an effect only if kernel = \"relu\"");
  CHECK(error("performer", {{"relu_offset", 0.5}, {"kernel", std::string("relu")}}).empty());
  CHECK(error("sparse", {{"form", std::string("strided")}, {"summary", int64_t{8}}}) ==
        "attention_options.summary: has an effect only if form = \"fixed\"");
  CHECK(error("image", {{"block_rows", int64_t{4}}}) ==
        "attention_options.block_rows: has an effect only if form = \"2d\"");
  CHECK(error("image", {{"form", std::string("2d")}, {"image_width", int64_t{64}}, {"memory", int64_t{4}}}) ==
        "attention_options.memory: has an effect only if form = \"1d\"");
  CHECK(error("synthesizer", {{"terms", std::vector<std::string>{"dense"}}, {"rank", int64_t{4}}}) ==
        "attention_options.rank: has an effect only if terms contains \"factorized-random\"");
  CHECK(error("big-bird", {{"random_blocks", int64_t{0}}, {"block_seed", int64_t{4}}}) ==
        "attention_options.block_seed: has an effect only if random_blocks > 0");
  CHECK(error("sparse", {{"heads", std::string("split")}}) ==
        "attention_options.heads: split needs at least two heads, got one: use merged");
}

TEST_CASE("local attention accepts sequences that are shorter than its window") {
  const Tensor q = normal({2, 7, 2, 4}, 1), k = normal({2, 7, 2, 4}, 2), v = normal({2, 7, 2, 4}, 3);
  const auto run = [&](const std::string& kind, const OptionValues& options) {
    check_attention_length(kind, options, q.size(1));
    return make_attention(kind, options)->forward(q, k, v, {}, {}, "layer").to_vector();
  };
  const AttentionKind& local = find_attention_kind("local");
  const auto whole = run("softmax", {});
  CHECK(run("local", local.default_options()) == whole);
  CHECK(run("local", local.make_options({{"form", std::string("blocks")}})) == whole);
  CHECK(run("local", local.make_options({{"window", int64_t{6}}})) != whole);
}
