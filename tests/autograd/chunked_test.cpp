#include "autograd/chunked.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kRows = 23, kDim = 5;
const int64_t kChunks[] = {1, 2, 7, kRows, 1000};

Tensor scaled(const Tensor& x, const Tensor& factor) {
  return mul(x, factor);
}

// Returns the gradients of the leaves, and resets the gradient of each leaf.
std::vector<Tensor> taken_gradients(const std::vector<Tensor>& leaves) {
  std::vector<Tensor> gradients;
  for (const Tensor& leaf : leaves) {
    gradients.push_back(gradient(leaf));
    set_gradient(leaf, {});
  }
  return gradients;
}

}  // namespace

TEST_CASE("chunks cover the rows without gaps for every number of chunks") {
  for (const int64_t rows : {0, 1, 7, 23})
    for (const int64_t chunks : {1, 2, 7, 23, 1000}) {
      int64_t next = 0, count = 0;
      for_each_chunk(rows, chunks, [&](int64_t first, int64_t last) {
        CHECK(first == next);
        CHECK((last > first || rows == 0));
        CHECK(last - first <= (rows + chunks - 1) / chunks);
        next = last;
        ++count;
      });
      CHECK(next == rows);
      CHECK(count == std::max<int64_t>(std::min(rows, chunks), 1));
    }
}

TEST_CASE("a chunked function has the values and gradients of the whole function, with dropout") {
  const Tensor x = set_requires_grad(normal({kRows, kDim}, 1)), w = set_requires_grad(normal({8, kDim}, 2)),
               b = set_requires_grad(normal({8}, 3)), cotangent = normal({kRows, 8}, 4);
  const DropoutMask mask{0.3, RandomStream(1, "chunks")};
  const auto function = [&](const Tensor& rows, int64_t first) {
    return linear(rows, w, b, Activation::gelu, mask.at_offset(first * 8));
  };
  const Tensor whole = function(x, 0);
  backward(whole, cotangent);
  const auto expected = taken_gradients({x, w, b});
  for (const int64_t chunks : kChunks) {
    const Tensor y = compute_in_chunks(function, x, chunks, {w, b});
    CHECK(tape_size() == 1 + requires_grad(whole));
    CHECK(max_difference(y, whole) < 1e-12);
    backward(y, cotangent);
    const auto found = taken_gradients({x, w, b});
    for (size_t i = 0; i < 3; ++i) CHECK(max_difference(found[i], expected[i]) < 1e-12);
  }
  // Negative control: if the dropout mask restarts in each chunk, the values differ.
  const Tensor wrong = compute_in_chunks(
      [&](const Tensor& rows, int64_t) { return linear(rows, w, b, Activation::gelu, mask); }, x, 2, {w, b});
  CHECK(max_difference(wrong, whole) > 0.1);
}

TEST_CASE("compute_in_chunks() uses `rows_gradient` instead of a replay") {
  const Tensor x = set_requires_grad(normal({kRows, kDim}, 1)), w1 = set_requires_grad(normal({8, kDim}, 2)),
               w2 = set_requires_grad(normal({5, 8}, 3)), b = set_requires_grad(normal({5}, 4)),
               cotangent = normal({kRows, 5}, 5);
  const auto hidden = [&](const Tensor& rows) { return linear(rows, w1, {}, Activation::gelu); };
  const auto function = [&](const Tensor& rows, int64_t) { return linear(hidden(rows), w2, b); };
  int64_t calls = 0;
  const auto rows_gradient = [&](const Tensor& rows, int64_t, const Tensor& g) {
    ++calls;
    run_linear_backward(hidden(rows), w2, b, g);
  };
  const Tensor whole = function(x, 0);
  backward(whole, cotangent);
  const auto expected = taken_gradients({x, w1, w2, b});
  const Tensor y = compute_in_chunks(function, x, 3, {w1, w2, b}, rows_gradient);
  CHECK(max_difference(y, whole) < 1e-12);
  backward(y, cotangent);
  CHECK(calls == 3);
  const auto found = taken_gradients({x, w1, w2, b});
  for (size_t i = 0; i < 4; ++i) CHECK(max_difference(found[i], expected[i]) < 1e-12);
  // Negative control: a `rows_gradient` that does not match the function gives a wrong gradient.
  backward(compute_in_chunks(function, x, 3, {w1, w2, b},
                             [&](const Tensor& rows, int64_t, const Tensor& g) {
                               run_linear_backward(linear(rows, w1, {}), w2, b, g);
                             }),
           cotangent);
  CHECK(max_difference(taken_gradients({x, w1, w2, b})[1], expected[1]) > 0.1);
  const Tensor h = hidden(x);
  CHECK_THROWS_WITH_AS(run_linear_backward(h, w2, b, h),
                       "linear: gradient (23, 8) does not match input (23, 8) and weight (5, 8)", ShapeError);
}

TEST_CASE("a chunked sum has the value and the gradients of the whole sum, also inside another function") {
  const Tensor x = set_requires_grad(normal({kRows, kDim}, 1)), w = set_requires_grad(normal({8, kDim}, 2));
  const auto function = [](const Tensor& rows, const std::vector<Tensor>& parameters, int64_t first) {
    return add(sum(square(tanh(linear(rows, parameters[0], {})))), static_cast<double>(first) * 0);
  };
  const Tensor whole = function(x, {w}, 0);
  backward(mul(whole, 3));
  const auto expected = taken_gradients({x, w});
  for (const int64_t chunks : kChunks) {
    const Tensor y = sum_in_chunks(function, x, chunks, {w}, scaled);
    CHECK(std::abs(y.item() - whole.item()) < 1e-11);
    CHECK_FALSE(gradient(w).defined());  // the forward pass alone sets no gradient of a leaf
    backward(mul(y, 3));
    const auto found = taken_gradients({x, w});
    for (size_t i = 0; i < 2; ++i) CHECK(max_difference(found[i], expected[i]) < 1e-12);
  }
  const NoGradScope no_grad;
  CHECK_FALSE(requires_grad(sum_in_chunks(function, x, 2, {w}, scaled)));
}

TEST_CASE("gradients of chunked functions pass the gradient check") {
  const auto plain = gradcheck(
      [](const std::vector<Tensor>& in) {
        return compute_in_chunks([&](const Tensor& rows, int64_t) { return tanh(rows); }, in[0], 3, {});
      },
      {normal({7, 3}, 1)});
  CHECK(plain.message == "");
  CHECK(plain.max_relative_error < 1e-8);
  const auto summed = gradcheck(
      [](const std::vector<Tensor>& in) {
        return sum_in_chunks([](const Tensor& rows, const std::vector<Tensor>& w,
                                int64_t) { return sum(square(linear(rows, w[0], {}))); },
                             in[0], 3, {in[1]}, scaled);
      },
      {normal({7, 3}, 1), normal({4, 3}, 2)});
  CHECK(summed.message == "");
  CHECK(summed.max_relative_error < 1e-8);
}

TEST_CASE("the peak memory of a chunked function decreases with the number of chunks") {
  const int64_t rows = 1024, hidden = 512;
  const Tensor x = set_requires_grad(normal({rows, kDim}, 1)),
               w1 = set_requires_grad(normal({hidden, kDim}, 2)),
               w2 = set_requires_grad(normal({kDim, hidden}, 3)), cotangent = normal({rows, kDim}, 4);
  const auto function = [&](const Tensor& part, int64_t) {
    return linear(linear(part, w1, {}, Activation::relu), w2, {});
  };
  std::vector<int64_t> peaks;
  // peaks[0] includes the gradients of the weights, which the first run allocates.
  for (const int64_t chunks : {1, 1, 4, 16}) {
    const int64_t before = get_device_allocator().stats().active_bytes;
    get_device_allocator().reset_peak();
    backward(compute_in_chunks(function, x, chunks, {w1, w2}), cotangent);
    peaks.push_back(get_device_allocator().stats().peak_bytes - before);
  }
  const int64_t hidden_bytes = rows * hidden * 8;
  // With one chunk, the hidden units of all rows and their gradients are in memory at the same time.
  CHECK(peaks[1] > 2 * hidden_bytes);
  CHECK(peaks[2] < peaks[1] / 3);
  CHECK(peaks[3] < peaks[1] / 10);
}

TEST_CASE("a function that returns the wrong shape is an error") {
  const Tensor x = normal({4, 3}, 1);
  CHECK_THROWS_WITH_AS(compute_in_chunks([](const Tensor& rows, int64_t) { return sum(rows, 0); }, x, 2, {}),
                       "chunked: the function returned shape (3,) for 2 rows", ShapeError);
  CHECK_THROWS_WITH_AS(
      sum_in_chunks([](const Tensor& rows, const std::vector<Tensor>&, int64_t) { return rows; }, x, 2, {},
                    scaled),
      "sum_in_chunks: the function returned shape (2, 3), not a scalar", ShapeError);
}
