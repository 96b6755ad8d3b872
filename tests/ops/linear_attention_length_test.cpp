// Tests that compare linear attention with its quadratic form, for the lengths of MNIST and CIFAR-10 and for
// the largest length in figure 1 of "Transformers are RNNs". The quadratic form is computed for some rows
// only, in float64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/reference/linear_attention.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kDim = 8;

// Returns the positions of the queries for which linear attention is compared with its quadratic form. The
// positions are at the start, near the end of the first chunk of 96 tokens, in the middle, at the end, and at
// intervals that grow by a factor of 1.5.
std::vector<int64_t> rows_of(int64_t length) {
  std::vector<int64_t> rows = {0, 1, 95, 96, 97, length / 2, length - 2, length - 1};
  for (int64_t row = 191; row < length; row = row * 3 / 2) rows.push_back(row);
  return rows;
}

// The largest differences between linear attention and its quadratic form. `gradient` is the difference of
// the gradients of v, divided by the largest gradient. Only the queries in rows_of() are used.
struct Differences {
  double output = 0, gradient = 0;
};

Differences differences(int64_t length, DType dtype) {
  const Shape shape{1, length, 1, kDim};
  const Tensor q = normal(shape, 1), k = normal(shape, 2), v = set_requires_grad(normal(shape, 3));
  const Tensor value = set_requires_grad(detach(v).to(dtype));
  const Tensor out = linear_attention(q.to(dtype), k.to(dtype), value, {.causal = true});
  const Tensor actual = detach(out).to(DType::float64),
               cotangent = Tensor::zeros(out.shape(), DType::float64);
  Differences largest;
  for (const int64_t i : rows_of(length)) {
    if (cotangent.data<double>()[i * kDim] != 0) continue;  // rows_of() can contain a position twice
    // The causal result of query i is the result for the keys 0 to i without a causal mask.
    const Tensor expected =
        linear_attention_reference(slice(q, 1, i, i + 1), slice(k, 1, 0, i + 1), slice(v, 1, 0, i + 1));
    backward(expected, Tensor::full(expected.shape(), 1, DType::float64));
    largest.output = std::max(largest.output, max_difference(slice(actual, 1, i, i + 1), expected));
    std::fill_n(cotangent.data<double>() + i * kDim, kDim, 1.0);
  }
  backward(out, cotangent.to(dtype));
  largest.gradient = max_difference(gradient(value).to(DType::float64), gradient(v)) /
                     max_difference(gradient(v), Tensor::zeros_like(gradient(v)));
  return largest;
}

}  // namespace

TEST_CASE("linear attention equals its quadratic form at 783, 3,071 and 65,536 tokens") {
  for (const int64_t length : {783, 3071, 65536}) {
    CAPTURE(length);
    const Differences exact = differences(length, DType::float64),
                      single = differences(length, DType::float32);
    CHECK(exact.output < 1e-11);
    CHECK(exact.gradient < 1e-11);
    // The rounding error of a sum of `length` float32 terms grows in proportion to the square root of
    // `length`.
    const double bound = 4 * 0x1p-24 * std::sqrt(static_cast<double>(length)) * kDim;
    CHECK(single.output < bound);
    CHECK(single.gradient < bound);
  }
}
