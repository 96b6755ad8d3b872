// Tests of softmax attention with windows of keys, which must equal dense attention with a mask.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"
#include "ops/reference/softmax_attention.h"
#include "ops/view.h"
#include "tests/ops/attention_inputs.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<KeyWindow> windows() {
  std::vector<KeyWindow> all;
  for (const int64_t block : {1, 2, 7, 40, 128})
    for (const int64_t before : {int64_t{0}, block, int64_t{64}, int64_t{255}})
      for (const int64_t after : {int64_t{0}, block, int64_t{9}}) all.push_back({block, before, after});
  return all;
}

}  // namespace

TEST_CASE("a window of keys equals the dense form with its mask, at lengths that no block divides") {
  for (const int64_t length : {1, 97, 391})
    for (const KeyWindow& window : windows())
      for (const bool causal : {false, true}) {
        CAPTURE(length);
        CAPTURE(concat_text(window.block_size, " ", window.before, " ", window.after, " ", causal));
        const std::vector<Tensor> in = attention_inputs({1, length, length, 1, 5, 3}).list();
        const Tensor cotangent = normal({1, length, 1, 3}, 9);
        SoftmaxAttentionOptions options{.causal = causal, .pattern = {.window = window}};
        if (length > 100) options.key_lengths = Tensor::from_vector<int64_t>({length - 60}, {1});
        const auto windowed = [&](const auto& x) { return softmax_attention(x[0], x[1], x[2], options); };
        const auto dense = [&](const auto& x) {
          return softmax_attention_reference(x[0], x[1], x[2], options);
        };
        const auto expected = outcome(dense, in, cotangent), found = outcome(windowed, in, cotangent);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(max_difference(found[i], expected[i]) < 1e-12);
        std::vector<Tensor> rounded;
        for (const Tensor& x : in) rounded.push_back(x.to(DType::bfloat16));
        const auto coarse = outcome(windowed, rounded, cotangent.to(DType::bfloat16));
        for (size_t i = 0; i < expected.size(); ++i)
          CHECK(max_difference(coarse[i].to(DType::float64), expected[i]) < 0.3);
      }
}

TEST_CASE("a window that covers the sequence gives the same bits as attention without a window") {
  const std::vector<Tensor> in = attention_inputs({2, 130, 130, 2, 8, 8}).list();
  const Tensor whole = softmax_attention(in[0], in[1], in[2], {.causal = true});
  const Tensor windowed = softmax_attention(
      in[0], in[1], in[2],
      {.causal = true, .pattern = {.window = {.block_size = 1, .before = 129, .after = 0}}});
  CHECK(whole.to_vector() == windowed.to_vector());
  const Tensor narrow =
      softmax_attention(in[0], in[1], in[2],
                        {.causal = true, .pattern = {.window = {.block_size = 1, .before = 20, .after = 0}}});
  CHECK(max_difference(whole, narrow) > 1e-3);
}

TEST_CASE("a query has no gradient to keys outside of its window") {
  const std::vector<Tensor> in = attention_inputs({1, 60, 60, 1, 4, 4}).list();
  const KeyWindow window{.block_size = 8, .before = 8, .after = 0};
  for (const int64_t query : {0, 7, 8, 41, 59}) {
    std::vector<Tensor> leaves;
    for (const Tensor& x : in) leaves.push_back(set_requires_grad(x.clone()));
    const Tensor y =
        softmax_attention(leaves[0], leaves[1], leaves[2], {.causal = true, .pattern = {.window = window}});
    const Tensor cotangent = Tensor::zeros({1, 60, 1, 4}, DType::float64);
    std::fill_n(cotangent.data<double>() + query * 4, 4, 1.0);
    backward(y, cotangent);
    for (size_t i = 1; i < 3; ++i)
      for (int64_t key = 0; key < 60; ++key) {
        double largest = 0;
        for (int64_t d = 0; d < 4; ++d)
          largest = std::max(largest, std::abs(gradient(leaves[i]).data<double>()[key * 4 + d]));
        const bool seen = key <= query && key >= query / 8 * 8 - 8;
        // The first query attends only to key 0. The weight of key 0 for the first query is always 1, so the
        // gradient of the key is 0.
        if (!seen || (i == 1 && query == 0)) CHECK(largest < 1e-15);
        if (seen && query > 0) CHECK(largest > 0);
      }
  }
}

TEST_CASE("a window needs queries and keys of equal length, and its sizes are checked") {
  const std::vector<Tensor> in = attention_inputs({1, 4, 6, 1, 2, 2}).list();
  CHECK_THROWS_WITH_AS(softmax_attention(in[0], in[1], in[2],
                                         {.pattern = {.window = {.block_size = 1, .before = 2, .after = 0}}}),
                       doctest::Contains("a pattern needs queries and keys of equal length"), ShapeError);
  CHECK_THROWS_WITH_AS(softmax_attention(in[0], in[0], in[0],
                                         {.pattern = {.window = {.block_size = 0, .before = 2, .after = 0}}}),
                       doctest::Contains("the window has block 0"), ShapeError);
}

TEST_CASE("a ring of keys and values decodes a window of any length, and equals the parallel form") {
  for (const KeyWindow& window : {KeyWindow{.block_size = 1, .before = 5, .after = 0},
                                  {.block_size = 4, .before = 4, .after = 0},
                                  {.block_size = 3, .before = 6, .after = 0},
                                  {.block_size = 70, .before = 70, .after = 0}}) {
    constexpr int64_t kLength = 301;
    const std::vector<Tensor> in = attention_inputs({2, kLength, kLength, 3, 4, 5}).list();
    const Tensor expected =
        softmax_attention(in[0], in[1], in[2], {.causal = true, .pattern = {.window = window}});
    const int64_t capacity = window.max_causal_key_count();
    KeyValueCache cache{Tensor::zeros({2, capacity, 3, 4}, DType::float64),
                        Tensor::zeros({2, capacity, 3, 5}, DType::float64),
                        0,
                        {.window = window}};
    const Tensor out = Tensor::empty({2, 3, 5}, DType::float64);
    double worst = 0;
    for (int64_t t = 0; t < kLength; ++t) {
      const auto token = [&](const Tensor& x) {
        return x.view({2, 3, x.size(3)}, {x.strides()[0], x.size(3), 1}, t * x.strides()[1]);
      };
      softmax_attention_step(token(in[0]), token(in[1]), token(in[2]), cache, out);
      worst = std::max(worst, max_difference(out, token(expected).clone()));
    }
    CHECK(worst < 1e-12);
  }
  KeyValueCache small{Tensor::zeros({1, 5, 1, 2}),
                      Tensor::zeros({1, 5, 1, 2}),
                      5,
                      {.window = {.block_size = 1, .before = 5, .after = 0}}};
  const Tensor token = Tensor::zeros({1, 1, 2});
  CHECK_THROWS_WITH_AS(softmax_attention_step(token, token, token, small, Tensor::zeros({1, 1, 2})),
                       doctest::Contains("the cache is full"), ShapeError);
}
