// Tests of the segment memory and of the attention kinds with relative positions that read it.
#include "models/layers/segment_memory.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "models/decoder.h"
#include "ops/sum.h"
#include "tests/models/segments.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr const char* kXl = "transformer-xl";

// Returns the options of a transformer-xl model of symbols with a memory of `memory` tokens.
AutoregressiveModelOptions xl_options(int64_t memory, int64_t max_length = kText) {
  return segment_options(kXl, {{"memory", memory}}, max_length);
}

// Returns the result of an attention kind with its default options. All parameters are set to `value`.
Tensor attention_of(const std::string& kind, double value, const Tensor& q, const Tensor& k,
                    const Tensor& v) {
  const auto attention = make_attention(kind, find_attention_kind(kind).default_options(),
                                        {.heads = q.size(2), .dim = q.size(3), .max_length = q.size(1)});
  attention->convert(DType::float64);
  for (const auto& [name, parameter] : attention->parameters()) parameter.fill(value);
  return attention->forward(q, k, v, {}, {}, "layer");
}

}  // namespace

TEST_CASE("segments with a memory as long as the text equal one causal pass over the text") {
  const Tensor tokens = random_tokens(3, kText, 2 * kText);
  for (const bool pre_norm : {false, true}) {
    AutoregressiveModelOptions options = xl_options(kText);
    options.encoder.pre_norm = pre_norm;
    const auto model = segment_model(options);
    const Tensor whole = model->forward(tokens, {});
    CHECK(max_difference(by_segments(*model, tokens), whole) < 1e-12);
    options.encoder.attention = xl_options(kSegment - 1).encoder.attention;
    CHECK(max_difference(by_segments(*segment_model(options), tokens), whole) > 1e-3);
  }
}

TEST_CASE("a memory that is shorter or longer than a segment has the newest tokens") {
  const Tensor x = normal({2, 11, 3}, 1);
  for (const int64_t tokens : {1, 3, 4, 7}) {
    CAPTURE(tokens);
    SegmentMemory memory(2, x);
    memory.add_layer("layer", {.tokens = tokens}, 3);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 4}, {4, 8}, {8, 11}}) {
      memory.start_segment(first);
      const Tensor found = memory.read("layer", 2);
      REQUIRE(found.defined() == (first > 0));
      if (first > 0)
        CHECK(max_difference(found, slice(x, 1, std::max<int64_t>(first - tokens, 0), first)) == 0);
      memory.write("layer", slice(x, 1, first, last));
      memory.write("layer", Tensor::zeros({2, 4, 3}, DType::float64));  // a replay stores nothing
    }
    memory.start_segment(0);
    CHECK(!memory.read("layer", 2).defined());
    CHECK(!memory.read("other", 2).defined());
  }
}

TEST_CASE("outputs depend on the memory, and no gradient passes through it") {
  const auto model = segment_model(xl_options(kText));
  // Symbols 0 to 3 occur only in the first segment, so their embeddings must get no gradient.
  const Tensor first = Tensor::from_vector<uint8_t>({0, 1, 2, 3}, {1, 4}),
               second = Tensor::from_vector<uint8_t>({7, 8, 9, 8, 7}, {1, 5}),
               changed = Tensor::from_vector<uint8_t>({3, 2, 1, 0}, {1, 4});
  const auto loss_after = [&](const Tensor& segment) {
    const auto memory = model->encoder.make_segment_memory(1);
    memory->start_segment(0);
    {
      const NoGradScope no_grad;
      model->forward(segment, {.memory = memory.get()});
    }
    memory->start_segment(4);
    const Tensor loss =
        model->compute_loss({.tokens = second, .mask = {}, .labels = {}}, {.memory = memory.get()});
    backward(loss);
    return loss.item();
  };
  CHECK(loss_after(first) != loss_after(changed));
  const auto found = gradient(model->value_embedding.weight).to_vector();
  const int64_t width = model->value_embedding.weight.size(1);
  for (int64_t i = 0; i < 4 * width; ++i) CHECK(found[static_cast<size_t>(i)] == 0);
  CHECK(found[static_cast<size_t>(7 * width)] != 0);
}

TEST_CASE("recomputed and reversible layers read the memory of the forward pass again") {
  const Tensor tokens = random_tokens(2, 2 * kSegment + 1, 2 * kText);
  for (const bool reversible : {false, true}) {
    CAPTURE(reversible);
    AutoregressiveModelOptions options = xl_options(3);
    options.encoder.pre_norm = true;
    const auto run = [&](bool replayed) {
      (reversible ? options.encoder.reversible : options.encoder.recompute) = replayed || reversible;
      const auto model = segment_model(options);
      const auto memory = model->encoder.make_segment_memory(2);
      std::vector<double> values;
      for (const int64_t first : {int64_t{0}, kSegment}) {
        memory->start_segment(first);
        const Batch batch{.tokens = slice(tokens, 1, first, first + kSegment + 1), .mask = {}, .labels = {}};
        backward(model->compute_loss(batch, {.training = true, .memory = memory.get()}));
      }
      for (const auto& [name, state] : memory->state())
        for (const double value : state.to_vector()) values.push_back(value);
      for (const auto& [name, parameter] : model->parameters())
        for (const double value : gradient(parameter).to_vector()) values.push_back(value);
      return values;
    };
    CHECK(run(true) == run(false));
  }
}

TEST_CASE("with zero parameters, transformer-xl equals softmax attention to the memory and the segment") {
  const Tensor q = normal({2, 5, 2, 4}, 1), k = normal({2, 8, 2, 4}, 2), v = normal({2, 8, 2, 4}, 3);
  CHECK(max_difference(attention_of(kXl, 0, q, k, v), attention_of("softmax", 0, q, k, v)) < 1e-14);
  CHECK(max_difference(attention_of(kXl, 0.3, q, k, v), attention_of("softmax", 0, q, k, v)) > 1e-3);
}

TEST_CASE("gradients of transformer-xl attention to a memory pass the gradient check") {
  const auto attention = make_attention(
      kXl, find_attention_kind(kXl).make_options({{"memory", int64_t{3}}, {"clamp", int64_t{4}}}),
      {.heads = 2, .dim = 4, .max_length = 5});
  attention->initialize(3);
  attention->convert(DType::float64);
  std::vector<Tensor> inputs{normal({2, 5, 2, 4}, 1), normal({2, 8, 2, 4}, 2), normal({2, 8, 2, 4}, 3)};
  const auto result = gradcheck(
      [&](const std::vector<Tensor>& in) { return attention->forward(in[0], in[1], in[2], {}, {}, "layer"); },
      inputs, {.step = 1e-4});
  CHECK(result.message == "");
  CHECK(result.max_relative_error < 1e-6);
}

TEST_CASE("transformer-xl has no gradient from the future, and distances beyond the clamp are equal") {
  const AttentionKind& kind = find_attention_kind(kXl);
  const AttentionSetup setup{.heads = 1, .dim = 4, .max_length = 6};
  const auto attention = make_attention(kXl, kind.make_options({{"memory", int64_t{2}}}), setup);
  attention->initialize(3);
  attention->convert(DType::float64);
  Tensor k = normal({1, 8, 1, 4}, 2);
  set_requires_grad(k);
  const Tensor q = normal({1, 6, 1, 4}, 1), v = normal({1, 8, 1, 4}, 3);
  backward(sum(slice(attention->forward(q, k, v, {}, {}, "layer"), 1, 0, 3)));
  const auto found = gradient(k).to_vector();
  for (size_t i = 0; i < found.size(); ++i) CHECK((found[i] == 0) == (i >= 5 * 4));
  // The option clamp = 1 replaces all distances above 1 by 1. The last query therefore gives the same weight
  // to equal keys at the distances 1 and 7.
  const auto clamped =
      make_attention(kXl, kind.make_options({{"memory", int64_t{2}}, {"clamp", int64_t{1}}}), setup);
  clamped->initialize(3);
  clamped->convert(DType::float64);
  const NoGradScope no_grad;
  const Tensor same = Tensor::zeros({1, 8, 1, 4}, DType::float64);
  const auto last = [&](const std::vector<double>& first_features) {
    Tensor values = Tensor::zeros({1, 8, 1, 4}, DType::float64);
    for (size_t j = 0; j < 8; ++j) values.data<double>()[4 * j] = first_features[j];
    return clamped->forward(q, same, values, {}, {}, "layer").to_vector()[5 * 4];
  };
  CHECK(last({1, 0, 0, 0, 0, 0, 0, 0}) == doctest::Approx(last({0, 0, 0, 0, 0, 0, 1, 0})).epsilon(1e-12));
  CHECK(last({1, 0, 0, 0, 0, 0, 0, 0}) != doctest::Approx(last({0, 0, 0, 0, 0, 0, 0, 1})).epsilon(1e-3));
}

TEST_CASE("decoding with a ring of constant size equals the parallel form over many segments") {
  const Tensor tokens = random_tokens(3, 5 * kSegment + 2, 2 * kText);
  for (const int64_t memory : {1, 3, 4, 9, 40}) {
    CAPTURE(memory);
    const auto model = segment_model(xl_options(memory, kSegment));
    const Tensor expected = by_segments(*model, tokens);
    Decoder decoder(*model, 3, tokens.size(1));
    CHECK(decoder.state_bytes() <= 2 * 2 * 3 * (memory + kSegment) * 8 * 8);
    double worst = 0;
    for (int64_t t = 0; t < tokens.size(1); ++t) {
      const Tensor& outputs = decoder.step(slice(tokens, 1, t, t + 1).clone().view({3}));
      worst =
          std::max(worst, max_difference(outputs, reshape(slice(expected, 1, t, t + 1), outputs.shape())));
    }
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("a segment memory refuses positions of segments") {
  AutoregressiveModelOptions options = xl_options(8);
  const auto problem = [&] {
    const auto problems = find_option_problems(options);
    return problems.empty() ? "" : problems.front().option + ": " + problems.front().message;
  };
  CHECK(problem() == "");
  options.position_kind = PositionKind::sinusoidal;
  CHECK(problem() ==
        "positions: a segment memory of 8 tokens needs relative positions only: expected \"none\", or a "
        "memory of 0");
  options.position_kind = PositionKind::none;
  options.encoder.rotary = true;
  CHECK(problem().starts_with("positions: a segment memory of 8 tokens"));
  options.encoder.attention = {{kXl, test_options(kXl)}};
  CHECK(problem() == "");
}
