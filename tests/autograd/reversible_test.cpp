#include "autograd/reversible.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kTokens = 6, kWidth = 4;

// The weights of the two branches of a reversible block.
struct Weights {
  explicit Weights(int salt)
      : f(set_requires_grad(normal({kWidth, kWidth}, salt))),
        g(set_requires_grad(normal({kWidth, kWidth}, salt + 1))) {}
  Tensor f, g;
};

ReversibleBlock block_of(const Weights& w, int64_t chunks = 1) {
  return {{{[f = w.f](const Tensor& x, int64_t) { return tanh(linear(x, f, {})); }},
           {[g = w.g](const Tensor& x, int64_t) { return sigmoid(linear(x, g, {})); }, chunks}},
          {w.f, w.g}};
}

// Returns the result of the blocks, computed without run_reversible(), so that the tape stores all
// intermediate results.
Tensor run_with_full_tape(const std::vector<ReversibleBlock>& blocks, Tensor x1, Tensor x2) {
  for (const ReversibleBlock& block : blocks)
    for (const ReversibleBranch& branch : block.branches) {
      x1 = add(x1, branch.function(x2, 0));
      std::swap(x1, x2);
    }
  return concat({x1, x2}, -1);
}

}  // namespace

TEST_CASE("a reversible stack has the values and the gradients of the same stack with a full tape") {
  const Weights a(1), b(3), c(5);
  const Tensor x1 = set_requires_grad(normal({kTokens, kWidth}, 10)),
               x2 = set_requires_grad(normal({kTokens, kWidth}, 11));
  const std::vector<Tensor> leaves = {x1, x2, a.f, a.g, b.f, b.g, c.f, c.g};
  const Tensor cotangent = normal({kTokens, 2 * kWidth}, 12);
  std::vector<Tensor> expected;
  for (const int64_t chunks : {0, 1, 2, 5, 6, 100}) {
    const std::vector<ReversibleBlock> blocks = {block_of(a, chunks), block_of(b, chunks),
                                                 block_of(c, chunks)};
    const Tensor y = chunks == 0 ? run_with_full_tape(blocks, x1, x2) : run_reversible(blocks, x1, x2);
    backward(y, cotangent);
    std::vector<Tensor> found = {detach(y)};
    for (const Tensor& leaf : leaves) {
      found.push_back(gradient(leaf));
      set_gradient(leaf, {});
    }
    if (expected.empty()) expected = found;
    for (size_t i = 0; i < found.size(); ++i) CHECK(max_difference(found[i], expected[i]) < 1e-13);
  }
}

TEST_CASE("gradients of a reversible stack pass the gradient check, also if both halves are one tensor") {
  const auto result = gradcheck(
      [](const std::vector<Tensor>& in) {
        const Weights a(1), b(3);
        return run_reversible({block_of(a), block_of(b, 2)}, in[0], in[0]);
      },
      {normal({kTokens, kWidth}, 10)});
  CHECK(result.message == "");
  CHECK(result.max_relative_error < 1e-8);
}

TEST_CASE("the gradient of a source is the sum over the blocks, also with three branches in a block") {
  const Weights a(1), b(3);
  const auto run = [&](bool reversible, const Tensor& x, const Tensor& read) {
    const ReversibleSource source(read);
    const Tensor& used = reversible ? source.leaf : read;
    const auto block = [&](const Weights& w) {
      ReversibleBlock result = block_of(w, 2);
      result.branches.push_back({[used, f = w.f](const Tensor& in, int64_t first) {
        return mul(linear(in, f, {}), slice(used, 0, first, first + in.size(0)));
      }});
      return result;
    };
    const std::vector<ReversibleBlock> blocks = {block_of(a), block(a), block(b)};
    return reversible ? run_reversible(blocks, x, x, {source}) : run_with_full_tape(blocks, x, x);
  };
  const Tensor x = set_requires_grad(normal({kTokens, kWidth}, 10)),
               leaf = set_requires_grad(normal({kTokens, kWidth}, 11)),
               cotangent = normal({kTokens, 2 * kWidth}, 12);
  std::vector<Tensor> found;
  for (const bool reversible : {false, true}) {
    const Tensor y = run(reversible, x, mul(leaf, 2));
    backward(y, cotangent, {.retain_tape = reversible});
    for (int pass = 0; pass < (reversible ? 2 : 1); ++pass) {
      if (pass > 0) backward(y, cotangent);
      for (const Tensor& t : {x, leaf, a.f, b.f}) {
        found.push_back(gradient(t));
        set_gradient(t, {});
      }
    }
    found.push_back(detach(y));
  }
  CHECK(max_difference(found[4], found.back()) < 1e-12);
  for (size_t i = 0; i < 4; ++i)
    for (const size_t other : {i + 5, i + 9}) CHECK(max_difference(found[i], found[other]) < 1e-11);
}

TEST_CASE("branches that return their gradient unchanged do not change the gradients of other branches") {
  // backward() of `in + w` assigns one gradient tensor to both `in` and `w`. run_reversible() must not change
  // this tensor.
  const Tensor w = set_requires_grad(normal({kTokens, kWidth}, 1)),
               x = set_requires_grad(normal({kTokens, kWidth}, 2));
  const auto shift = [&](const Tensor& in, int64_t) { return add(in, w); };
  const std::vector<ReversibleBlock> blocks(3, {{{shift}, {shift}}, {w}});
  const Tensor cotangent = normal({kTokens, 2 * kWidth}, 3);
  backward(run_with_full_tape(blocks, x, x), cotangent);
  const Tensor gw = gradient(w), gx = gradient(x);
  for (const Tensor& leaf : {w, x}) set_gradient(leaf, {});
  backward(run_reversible(blocks, x, x), cotangent);
  CHECK(max_difference(gradient(w), gw) < 1e-13);
  CHECK(max_difference(gradient(x), gx) < 1e-13);
}

TEST_CASE("each branch runs twice per step, and the tape holds the ops of one block at a time") {
  const Weights weights(1);
  const Tensor x = set_requires_grad(normal({kTokens, kWidth}, 2));
  std::vector<int64_t> tape_sizes;
  const auto counted = [&](const Tensor& in, int64_t) {
    tape_sizes.push_back(tape_size());
    return tanh(linear(tanh(in), weights.f, {}));
  };
  const std::vector<ReversibleBlock> blocks(5, {{{counted}, {counted}}, {weights.f}});
  const Tensor y = run_reversible(blocks, x, x);
  CHECK(tape_size() == 1);
  CHECK(tape_sizes == std::vector<int64_t>(10, 0));
  tape_sizes.clear();
  backward(y, Tensor::full(y.shape(), 1, DType::float64));
  CHECK(tape_sizes == std::vector<int64_t>(10, 1));
}

TEST_CASE(
    "run_reversible() is recorded if only its parameters require a gradient, and `retain_tape` allows a "
    "second "
    "backward()") {
  const Weights w(1);
  const Tensor x = normal({kTokens, kWidth}, 2),
               ones = Tensor::full({kTokens, 2 * kWidth}, 1, DType::float64);
  const Tensor y = run_reversible({block_of(w)}, x, x);
  backward(y, ones, {.retain_tape = true});
  const std::vector<double> once = gradient(w.f).to_vector();
  backward(y, ones);
  for (size_t i = 0; i < once.size(); ++i) CHECK(gradient(w.f).to_vector()[i] == 2 * once[i]);
  const NoGradScope no_grad;
  CHECK_FALSE(requires_grad(run_reversible({block_of(w)}, x, x)));
}

TEST_CASE("backward() of a reversible stack releases the outputs and their gradient") {
  constexpr int64_t kRows = 8192;
  const Weights a(1);
  const Tensor x1 = set_requires_grad(normal({kRows, kWidth}, 10)),
               x2 = set_requires_grad(normal({kRows, kWidth}, 11));
  const Tensor loss = mean(run_reversible({block_of(a, 64)}, x1, x2));
  CachingAllocator& memory = get_device_allocator();
  const int64_t before = memory.stats().active_bytes, half = kRows * kWidth * 8;
  memory.reset_peak();
  backward(loss);
  // The expected peak is 7 * half, where `half` is the size of x1 in bytes. The gradient of the outputs and
  // the copy of this gradient use 4 * half. The result of branch f and two gradients use the other 3 * half.
  CHECK(memory.stats().peak_bytes - before < 8 * half);
}

TEST_CASE("backward() with retain runs a reversible stack again") {
  const Weights a(1);
  const Tensor x1 = set_requires_grad(normal({kTokens, kWidth}, 10)),
               x2 = set_requires_grad(normal({kTokens, kWidth}, 11));
  const Tensor y = run_reversible({block_of(a), block_of(a)}, x1, x2),
               cotangent = normal({kTokens, 2 * kWidth}, 12);
  backward(y, cotangent, {.retain_tape = true});
  const Tensor once = gradient(a.f).clone();
  backward(y, cotangent);
  CHECK(max_difference(gradient(a.f), mul(once, 2)) < 1e-12);
}

TEST_CASE("halves of different shapes are an error") {
  const Weights w(1);
  CHECK_THROWS_WITH_AS(run_reversible({block_of(w)}, normal({2, 4}), normal({3, 4})),
                       "reversible: halves (2, 4) float64 and (3, 4) float64 must have equal shapes with at "
                       "least two dimensions, and equal dtypes",
                       ShapeError);
}
