#include "ops/conv1d.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "core/threads/threads.h"
#include "tests/support/lengths.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Computes the convolution by its definition, as a reference.
std::vector<double> naive_conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const std::vector<int64_t>& counts, const Conv1dOptions& o) {
  const int64_t frames = x.size(1), in = x.size(2), out = weight.size(0), kernel = weight.size(1);
  const int64_t steps = count_conv1d_steps(frames, kernel, o);
  std::vector<double> y;
  for (int64_t b = 0; b < x.size(0); ++b) {
    const int64_t count = counts[static_cast<size_t>(b)];
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t n = 0; n < out; ++n) {
        double sum = bias.defined() ? bias.data<double>()[n] : 0;
        for (int64_t k = 0; k < kernel; ++k) {
          const int64_t from = t * o.stride + k - o.padding_before;
          if (from < 0 || from >= count) continue;
          for (int64_t i = 0; i < in; ++i)
            sum += weight.data<double>()[(n * kernel + k) * in + i] *
                   x.data<double>()[(b * frames + from) * in + i];
        }
        y.push_back(t < count_conv1d_steps(count, kernel, o) ? sum : 0);
      }
  }
  return y;
}

const std::vector<int64_t> kFrameCounts = {9, 0, 4, 1};

}  // namespace

TEST_CASE("conv1d equals its definition for every stride, padding and length") {
  for (const int64_t kernel : {1, 2, 3, 5})
    for (const int64_t stride : {1, 2, 3, 7})
      for (const auto& size : {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {2, 2}}) {
        const int64_t before = std::get<0>(size), after = std::get<1>(size);
        CAPTURE(kernel);
        CAPTURE(stride);
        CAPTURE(before);
        const Conv1dOptions options{stride, before, after};
        const Tensor x = normal({4, 9, 3}, 1), weight = normal({5, kernel, 3}, 2), bias = normal({5}, 3);
        for (const Tensor& b : {bias, Tensor{}}) {
          const Tensor y = conv1d(x, weight, b, lengths(kFrameCounts), options);
          const auto expected = naive_conv1d(x, weight, b, kFrameCounts, options);
          const auto found = y.to_vector();
          REQUIRE(found.size() == expected.size());
          for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-13);
        }
        CHECK(max_difference(conv1d(x, weight, bias, {}, options),
                             conv1d(x, weight, bias, lengths({9, 9, 9, 9}), options)) == 0);
      }
}

TEST_CASE("conv1d of a sequence does not depend on the rest of the batch or on padding") {
  const Conv1dOptions options{2, 1, 1};
  const Tensor x = normal({3, 33, 4}, 1), weight = normal({6, 3, 4}, 2), bias = normal({6}, 3);
  const Tensor y = conv1d(x, weight, bias, lengths({33, 20, 7}), options);
  const Tensor alone = conv1d(x.view({1, 20, 4}, {80, 4, 1}, 33 * 4).clone(), weight, bias, {}, options);
  CHECK(count_conv1d_steps(20, 3, options) == 10);
  CHECK(max_difference(y.view({1, 10, 6}, {60, 6, 1}, 17 * 6).clone(), alone) < 1e-14);
}

TEST_CASE("gradients of conv1d pass the gradient check, with and without lengths") {
  for (const int64_t stride : {1, 2, 3, 5})
    for (const std::vector<int64_t>& counts : {kFrameCounts, {9, 9, 9, 9}}) {
      CAPTURE(stride);
      const auto function = [&](const std::vector<Tensor>& in) {
        return conv1d(in[0], in[1], in[2], lengths(counts), {stride, 1, 2});
      };
      const GradcheckResult result =
          gradcheck(function, {normal({4, 9, 2}, 1), normal({3, 3, 2}, 2), normal({3}, 3)});
      CHECK(result.message == "");
      CHECK(result.max_relative_error < 1e-8);
    }
}

TEST_CASE("conv1d accepts empty batches and too few frames, and does not depend on the number of threads") {
  const Tensor weight = normal({5, 3, 2}, 2), bias = normal({5}, 3);
  CHECK(conv1d(normal({0, 7, 2}), weight, bias, {}).shape() == Shape{0, 5, 5});
  CHECK(conv1d(normal({2, 2, 2}), weight, bias, {}).shape() == Shape{2, 0, 5});
  CHECK(conv1d(normal({2, 0, 2}), weight, bias, {}, {1, 4, 4}).shape() == Shape{2, 0, 5});
  for (const Shape& shape : {Shape{0, 7, 2}, Shape{2, 2, 2}}) {
    const Tensor x = normal(shape), w = weight.clone();
    for (const Tensor& leaf : {x, w}) set_requires_grad(leaf);
    const Tensor y = conv1d(x, w, bias, {});
    backward(y, Tensor::zeros(y.shape(), DType::float64));
    for (const double g : gradient(w).to_vector()) CHECK(g == 0);
    for (const double g : gradient(x).to_vector()) CHECK(g == 0);
  }
  const int before = get_thread_count();
  std::vector<Tensor> results;
  for (const int count : {1, 2, 3}) {
    set_thread_count(count);
    results.push_back(conv1d(normal({4, 40, 8}, 1, DType::float32), normal({16, 3, 8}, 2, DType::float32), {},
                             {}, {2, 1, 0}));
  }
  set_thread_count(before);
  CHECK(max_difference(results[0], results[1]) < 1e-5);
  CHECK(max_difference(results[0], results[2]) < 1e-5);
}

TEST_CASE("errors about arguments of conv1d contain the mismatched shapes") {
  const Tensor x = normal({2, 5, 3}), weight = normal({4, 3, 3}), bias = normal({4});
  CHECK_THROWS_WITH_AS(
      conv1d(x, normal({4, 3, 2}), bias, {}),
      "conv1d: input (2, 5, 3) (batch, frames, in) does not match weight (4, 3, 2) (out, kernel, in)",
      ShapeError);
  CHECK_THROWS_WITH(
      conv1d(normal({5, 3}), weight, bias, {}),
      "conv1d: input (5, 3) (batch, frames, in) does not match weight (4, 3, 3) (out, kernel, in)");
  CHECK_THROWS_WITH(conv1d(x, weight, normal({3}), {}), "conv1d: bias (3,) does not match weight (4, 3, 3)");
  CHECK_THROWS_WITH(
      conv1d(x, weight.to(DType::float32), {}, {}),
      "conv1d: input is float64 and weight float32; input, weight and bias must have equal dtypes");
  CHECK_THROWS_WITH(conv1d(x, weight, bias, lengths({5, 6})),
                    "conv1d: length 6 of sequence 1 is not in [0, 5]");
  CHECK_THROWS_AS(conv1d(x, weight, bias, {}, {0, 0, 0}), ShapeError);
  CHECK_THROWS_AS(conv1d(x, weight, bias, {}, {1, -1, 0}), ShapeError);
}
