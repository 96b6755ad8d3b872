#include "ops/lstm.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "core/threads/threads.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "tests/support/lengths.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns one list of random weights: for each direction, two weights and then two biases.
std::vector<Tensor> random_weights(int64_t directions, int64_t in, int64_t hidden,
                                   DType dtype = DType::float64) {
  std::vector<Tensor> list;
  for (int d = 0; d < directions; ++d)
    for (const Shape& shape :
         {Shape{4 * hidden, in}, Shape{4 * hidden, hidden}, Shape{4 * hidden}, Shape{4 * hidden}})
      list.push_back(normal(shape, 10 + static_cast<int>(list.size()), dtype));
  return list;
}
std::vector<LstmWeights> directions_of(const std::vector<Tensor>& list, size_t first = 0) {
  std::vector<LstmWeights> directions;
  for (size_t i = first; i < list.size(); i += 4)
    directions.push_back({list[i], list[i + 1], list[i + 2], list[i + 3]});
  return directions;
}

// Computes one direction of an LSTM for one sequence x (frames, in) from elementary ops. Returns the hidden
// states (frames, hidden).
Tensor plain_direction(const Tensor& x, const LstmWeights& w, bool reverse) {
  const int64_t frames = x.size(0), hidden = w.weight_hh.size(1);
  Tensor h = Tensor::zeros({1, hidden}, x.dtype()), c = h;
  std::vector<Tensor> results(static_cast<size_t>(frames));
  for (int64_t i = 0; i < frames; ++i) {
    const int64_t t = reverse ? frames - 1 - i : i;
    const Tensor z = add(add(matmul(slice(x, 0, t, t + 1), w.weight_ih, {.transpose_b = true}), w.bias_ih),
                         add(matmul(h, w.weight_hh, {.transpose_b = true}), w.bias_hh));
    const auto gate = [&](int64_t n) { return slice(z, 1, n * hidden, (n + 1) * hidden); };
    c = add(mul(sigmoid(gate(1)), c), mul(sigmoid(gate(0)), tanh(gate(2))));
    h = mul(sigmoid(gate(3)), tanh(c));
    results[static_cast<size_t>(t)] = h;
  }
  return concat(results, 0);
}

// Computes an LSTM as a reference, one sequence at a time. Results after the end of a sequence are zero.
Tensor plain_lstm(const Tensor& x, const std::vector<int64_t>& counts,
                  const std::vector<LstmWeights>& directions) {
  const int64_t frames = x.size(1), hidden = directions[0].weight_hh.size(1);
  std::vector<Tensor> sequences;
  for (size_t b = 0; b < counts.size(); ++b) {
    const auto at = static_cast<int64_t>(b);
    const Tensor sequence = reshape(slice(x, 0, at, at + 1), {frames, x.size(2)});
    std::vector<Tensor> sides;
    for (size_t d = 0; d < directions.size(); ++d) {
      const Tensor padding = Tensor::zeros({frames - counts[b], hidden}, x.dtype());
      if (counts[b] == 0)
        sides.push_back(padding);
      else
        sides.push_back(
            concat({plain_direction(slice(sequence, 0, 0, counts[b]), directions[d], d == 1), padding}, 0));
    }
    sequences.push_back(concat(sides, 1));
  }
  return stack(sequences, 0);
}

const std::vector<int64_t> kCounts = {5, 0, 7, 1, 5};

}  // namespace

TEST_CASE("the LSTM equals its composition of small ops, in value and gradient") {
  for (const int64_t count : {1, 2})
    for (const int64_t hidden : {1, 3, 17}) {
      CAPTURE(hidden);
      auto run = [&](bool fused) {
        std::vector<Tensor> leaves = {normal({5, 7, 4}, 1)};
        for (const Tensor& w : random_weights(count, 4, hidden)) leaves.push_back(w);
        for (const Tensor& leaf : leaves) set_requires_grad(leaf);
        const auto directions = directions_of(leaves, 1);
        const Tensor y = fused ? lstm(leaves[0], lengths(kCounts), directions)
                               : plain_lstm(leaves[0], kCounts, directions);
        backward(y, normal(y.shape(), 99));
        std::vector<Tensor> all = {y};
        for (const Tensor& leaf : leaves) all.push_back(gradient(leaf));
        return all;
      };
      const auto fused = run(true), plain = run(false);
      for (size_t i = 0; i < plain.size(); ++i) {
        CAPTURE(i);
        CHECK(max_difference(fused[i], plain[i]) < 1e-12);
      }
    }
}

// lstm() computes the products of the inputs and weights in blocks of 48 or 64 frames.
TEST_CASE("the LSTM is correct for lengths near multiples of a block of frames") {
  const std::vector<int64_t> counts = {48, 100, 0, 47, 96, 49, 1, 63, 64, 65};
  const auto weights = random_weights(2, 3, 5);
  const Tensor x = normal({10, 100, 3}, 1);
  const auto directions = directions_of(weights);
  CHECK(max_difference(lstm(x, lengths(counts), directions), plain_lstm(x, counts, directions)) < 1e-12);
}

TEST_CASE("gradients of the LSTM pass the gradient check") {
  for (const int64_t count : {1, 2}) {
    std::vector<Tensor> inputs = {normal({5, 7, 2}, 1)};
    for (const Tensor& w : random_weights(count, 2, 3)) inputs.push_back(w);
    auto function = [&](const std::vector<Tensor>& in) {
      return lstm(in[0], lengths(kCounts), directions_of(in, 1));
    };
    const GradcheckResult result = gradcheck(function, inputs);
    CHECK(result.message == "");
    CHECK(result.max_relative_error < 1e-7);
  }
}

TEST_CASE("the LSTM does not read frames beyond a length, and their results are zero") {
  const Tensor x = set_requires_grad(normal({5, 7, 4}, 1, DType::float32));
  for (size_t b = 0; b < kCounts.size(); ++b)
    for (int64_t i = kCounts[b] * 4; i < 28; ++i)
      x.data<float>()[static_cast<int64_t>(b) * 28 + i] = std::nanf("");
  const auto weights = random_weights(2, 4, 9, DType::float32);
  const Tensor y = lstm(x, lengths(kCounts), directions_of(weights));
  backward(y, Tensor::full(y.shape(), 1));
  for (size_t b = 0; b < kCounts.size(); ++b)
    for (int64_t t = 0; t < 7; ++t) {
      const int64_t row = static_cast<int64_t>(b) * 7 + t;
      for (int64_t i = 0; i < 18; ++i) REQUIRE((y.data<float>()[row * 18 + i] == 0) == (t >= kCounts[b]));
      for (int64_t i = 0; i < 4; ++i)
        REQUIRE((gradient(x).data<float>()[row * 4 + i] == 0) == (t >= kCounts[b]));
    }
}

TEST_CASE("the LSTM gives the same results with any number of threads, and float32 is near float64") {
  auto run = [&](int count, DType dtype) {
    const int before = get_thread_count();
    set_thread_count(count);
    std::vector<Tensor> leaves = {normal({5, 7, 4}, 1, dtype)};
    for (const Tensor& w : random_weights(2, 4, 20, dtype)) leaves.push_back(w);
    for (const Tensor& leaf : leaves) set_requires_grad(leaf);
    const Tensor y = lstm(leaves[0], lengths(kCounts), directions_of(leaves, 1));
    backward(y, Tensor::full(y.shape(), 0.3, dtype));
    set_thread_count(before);
    auto all = y.to_vector();
    for (const Tensor& leaf : leaves)
      for (const double value : gradient(leaf).to_vector()) all.push_back(value);
    return all;
  };
  const auto once = run(2, DType::float32), exact = run(2, DType::float64);
  CHECK(once == run(2, DType::float32));
  for (const int count : {1, 3, 8}) {
    const auto other = run(count, DType::float32);
    for (size_t i = 0; i < once.size(); ++i) REQUIRE(other[i] == doctest::Approx(once[i]).epsilon(1e-5));
  }
  for (size_t i = 0; i < once.size(); ++i) REQUIRE(std::abs(once[i] - exact[i]) < 2e-4);
}

// lstm() sums the gradients of the weights over blocks of 256 frames. Several threads share the blocks.
TEST_CASE("gradients of LSTM weights are sums over all blocks of frames, with any number of threads") {
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{300, 0, 255, 1}, {300, 300, 300, 300}}) {
    const std::vector<Tensor> inputs = random_weights(2, 3, 5);
    const Tensor x = normal({4, 300, 3}, 1), g = normal({4, 300, 10}, 99);
    const auto gradients = [&](bool fused, int count) {
      const int before = get_thread_count();
      set_thread_count(count);
      std::vector<Tensor> leaves = {set_requires_grad(x.alias())}, all;
      for (const Tensor& weight : inputs) leaves.push_back(set_requires_grad(weight.alias()));
      const auto directions = directions_of(leaves, 1);
      backward(
          fused ? lstm(leaves[0], lengths(counts), directions) : plain_lstm(leaves[0], counts, directions),
          g);
      set_thread_count(before);
      for (const Tensor& leaf : leaves) all.push_back(gradient(leaf));
      return all;
    };
    const auto expected = gradients(false, 1);
    for (const int count : {1, 2, 7}) {
      const auto found = gradients(true, count);
      for (size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);
        CHECK(max_difference(found[i], expected[i]) < 1e-10);
      }
    }
  }
}

TEST_CASE("the LSTM without lengths uses all frames, and accepts empty sequences and batches") {
  const auto weights = random_weights(2, 4, 3);
  const Tensor x = normal({2, 6, 4});
  CHECK(max_difference(lstm(x, {}, directions_of(weights)),
                       lstm(x, lengths({6, 6}), directions_of(weights))) == 0);
  CHECK(lstm(normal({0, 6, 4}), {}, directions_of(weights)).shape() == Shape{0, 6, 6});
  CHECK(lstm(normal({2, 0, 4}), {}, directions_of(weights)).shape() == Shape{2, 0, 6});
}

TEST_CASE("errors about arguments of the LSTM contain the expected value") {
  const auto weights = random_weights(1, 4, 3);
  const Tensor x = normal({2, 6, 4});
  CHECK_THROWS_WITH_AS(lstm(normal({6, 4}), {}, directions_of(weights)),
                       "lstm: input must be (batch, frames, in), not (6, 4)", ShapeError);
  CHECK_THROWS_WITH(
      lstm(normal({2, 6, 5}), {}, directions_of(weights)),
      "lstm: weights (12, 4) and (12, 3) for input (2, 6, 5); they must be (4 hidden, in) and (4 "
      "hidden, hidden)");
  CHECK_THROWS_WITH(lstm(x, lengths({6, 7}), directions_of(weights)),
                    "lstm: length 7 of sequence 1 is not in [0, 6]");
  CHECK_THROWS_WITH(lstm(x, lengths({6}), directions_of(weights)),
                    "lstm: lengths (1,) of int64 must be (2,) of int64");
  CHECK_THROWS_WITH(lstm(x, {}, {}), "lstm: expected 1 or 2 directions, not 0");
  CHECK_THROWS_WITH(lstm(x.to(DType::float32), {}, directions_of(weights)),
                    "lstm: the weights are float64 and the input float32, expected equal dtypes");
  auto wrong = weights;
  wrong[3] = normal({11});
  CHECK_THROWS_WITH(lstm(x, {}, directions_of(wrong)), "lstm: biases (12,) and (11,) must be (12,)");
}
