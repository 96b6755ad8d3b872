// Tests that the runs of a KeyPattern contain the keys of PatternCase::contains(), which defines the pattern,
// and that softmax attention to these keys equals the reference.
#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/gradcheck.h"
#include "ops/reference/softmax_attention.h"
#include "ops/view.h"
#include "tests/ops/attention_inputs.h"
#include "tests/ops/pattern_cases.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the pattern of one head. If the case has a table of key blocks, the pattern points to the table.
KeyPattern head_pattern(const PatternCase& c, int64_t head) {
  KeyPattern pattern = c.pattern;
  if (c.key_blocks.defined()) {
    const int64_t rows = c.key_blocks.size(1), width = c.key_blocks.size(2);
    pattern.table = {c.key_blocks.data<int32_t>(), pattern.table.block_size, rows, width, rows * width};
  }
  return pattern.get_head_pattern(head);
}

// Calls next(position) for positions in [begin, end), and checks the returned runs of positions. Returns
// whether the runs contain all positions for which `expected` is true. If `exact` is true, the runs must
// contain no other position.
template <class Next, class Expected>
bool runs_match(int64_t begin, int64_t end, bool exact, Next next, Expected expected) {
  for (int64_t position = begin; position < end;) {
    const PositionRun run = next(position);
    if (run.begin < position || (!run.is_empty() && run.end <= run.begin)) return false;
    for (; position < std::min(run.begin, end); ++position)
      if (expected(position)) return false;
    for (; position < std::min(run.end, end) && !run.is_empty(); ++position)
      if (exact && !expected(position)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("runs of a pattern contain exactly the keys of its definition") {
  for (const int64_t length : {1, 9, 61, 130})
    for (const int64_t unit : {2, 5, 32})
      for (const PatternCase& c : pattern_cases(length, 2, unit))
        for (const int64_t head : {0, 1}) {
          CAPTURE(concat_text(c.name, ", ", length, ", ", unit, ", head ", head));
          const KeyPattern pattern = head_pattern(c, head);
          const auto any_query = [&](int64_t first, int64_t end, int64_t key) {
            for (int64_t i = first; i < end; ++i)
              if (c.contains(head, i, key)) return true;
            return false;
          };
          const auto any_key = [&](int64_t query, int64_t first, int64_t end) {
            for (int64_t j = first; j < end; ++j)
              if (c.contains(head, query, j)) return true;
            return false;
          };
          bool match = true;
          for (int64_t first = 0; first < length; ++first)
            for (const int64_t count : {1, 8, 40}) {
              const int64_t end = std::min(first + count, length);
              match =
                  match &&
                  runs_match(
                      0, length, count == 1,
                      [&](int64_t from) { return pattern.find_keys(first, end, from); },
                      [&](int64_t key) { return any_query(first, end, key); }) &&
                  runs_match(
                      0, length, false, [&](int64_t from) { return pattern.find_queries(first, end, from); },
                      [&](int64_t query) { return any_key(query, first, end); });
            }
          CHECK(match);
        }
}

TEST_CASE("the number of runs of a block of queries does not depend on the length") {
  for (const PatternCase& c : pattern_cases(1 << 16, 1, 64)) {
    if (c.name != "global" && c.name != "table" && c.name != "grid") continue;
    CAPTURE(c.name);
    const KeyPattern pattern = head_pattern(c, 0);
    int64_t keys = 0, runs = 0;
    const int64_t first = 32'000;
    for (PositionRun run = pattern.find_keys(first, first + 64, 0); run.begin < 1 << 16;
         run = pattern.find_keys(first, first + 64, run.end), ++runs)
      keys += std::min<int64_t>(run.end, 1 << 16) - run.begin;
    CHECK(runs < 20);
    CHECK(keys < 400);
  }
}

TEST_CASE("softmax attention with a pattern equals the reference, at lengths that no block divides") {
  for (const int64_t length : {1, 7, 97, 391})
    for (const int64_t unit : {3, 32})
      for (const PatternCase& c : pattern_cases(length, 2, unit))
        for (const bool causal : {false, true}) {
          CAPTURE(concat_text(c.name, ", ", length, ", ", unit, ", ", causal));
          const AttentionInputs in = attention_inputs({1, length, length, 2, 5, 3});
          const SoftmaxAttentionOptions options = c.options(causal);
          CHECK(max_difference(softmax_attention(in.q, in.k, in.v, options),
                               softmax_attention_reference(in.q, in.k, in.v, options)) < 1e-12);
        }
}

TEST_CASE("gradients of softmax attention with a pattern equal the gradients of the reference") {
  for (const int64_t length : {9, 97, 391, 250})
    for (const PatternCase& c : pattern_cases(length, 2, length < 10 ? 2 : 24))
      for (const bool causal : {false, true}) {
        CAPTURE(concat_text(c.name, ", ", length, ", ", causal));
        const std::vector<Tensor> in = attention_inputs({2, length, length, 2, 6, 5}).list();
        const Tensor cotangent = normal({2, length, 2, 5}, 9);
        SoftmaxAttentionOptions options = c.options(causal);
        if (length == 97 || length == 391)
          options.key_lengths = Tensor::from_vector<int64_t>({length - length / 3, 0}, {2});
        options.dropout = length == 97 ? 0.2 : 0;
        options.dropout_stream = RandomStream(5, "weights");
        const auto sparse = [&](const auto& x) { return softmax_attention(x[0], x[1], x[2], options); };
        const auto dense = [&](const auto& x) {
          return softmax_attention_reference(x[0], x[1], x[2], options);
        };
        const auto expected = outcome(dense, in, cotangent), found = outcome(sparse, in, cotangent);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(max_difference(found[i], expected[i]) < 1e-12);
        std::vector<Tensor> singles, rounded;
        for (const Tensor& x : in) {
          singles.push_back(x.to(DType::float32));
          rounded.push_back(x.to(DType::bfloat16));
        }
        const auto single = outcome(sparse, singles, cotangent), coarse = outcome(sparse, rounded, cotangent);
        for (size_t i = 0; i < expected.size(); ++i) {
          CHECK(max_difference(single[i].to(DType::float64), expected[i]) < 1e-4);
          CHECK(max_difference(coarse[i].to(DType::float64), expected[i]) < 0.3);
        }
      }
}

TEST_CASE("a step over a cache attends to the keys of the pattern") {
  constexpr int64_t kLength = 83;
  for (const PatternCase& c : pattern_cases(kLength, 2, 8)) {
    CAPTURE(c.name);
    const AttentionInputs in = attention_inputs({2, kLength, kLength, 2, 4, 5});
    const Tensor expected = softmax_attention(in.q, in.k, in.v, c.options(true));
    KeyValueCache cache{Tensor::zeros({2, kLength, 2, 4}, DType::float64),
                        Tensor::zeros({2, kLength, 2, 5}, DType::float64), 0, c.pattern, c.key_blocks};
    const Tensor out = Tensor::empty({2, 2, 5}, DType::float64);
    double worst = 0;
    for (int64_t t = 0; t < kLength; ++t) {
      const auto token = [&](const Tensor& x) {
        return x.view({2, 2, x.size(3)}, {x.strides()[0], x.size(3), 1}, t * x.strides()[1]);
      };
      softmax_attention_step(token(in.q), token(in.k), token(in.v), cache, out);
      worst = std::max(worst, max_difference(out, token(expected).clone()));
    }
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("invalid patterns and tables of key blocks are errors") {
  const AttentionInputs in = attention_inputs({1, 6, 6, 2, 2, 2});
  const auto run = [&](const SoftmaxAttentionOptions& options) {
    softmax_attention(in.q, in.k, in.v, options);
  };
  const KeyWindow none = KeyPattern::make_empty_window();
  CHECK_THROWS_WITH_AS(run({.pattern = {.window = none, .periodic = {2, 3}}}),
                       doctest::Contains("the pattern has step 0, period 2, count 3"), ShapeError);
  CHECK_THROWS_WITH_AS(
      run({.pattern = {.window = none}, .key_blocks = Tensor::zeros({3, 3, 1}, DType::int32)}),
      doctest::Contains("key_blocks must be int32 (rows, width) or (2, rows, width)"), ShapeError);
  CHECK_THROWS_AS(run({.pattern = {.window = none}, .key_blocks = Tensor::zeros({3, 1}, DType::int64)}),
                  ShapeError);
}
