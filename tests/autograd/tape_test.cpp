#include "autograd/tape.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "tests/autograd/small_ops.h"

using namespace tapeformer;
using namespace tapeformer::small;

TEST_CASE("gradients of shared inputs add up") {
  const Tensor x = leaf(3);
  backward(plus(times(x, x), x));
  CHECK(gradient(x).item() == 7);
  backward(plus(x, x));  // accumulates on top
  CHECK(gradient(x).item() == 9);
  CHECK(tape_size() == 0);
}

TEST_CASE("accumulating into a gradient does not change a handle that the caller kept") {
  const Tensor x = leaf(3);
  backward(plus(x, x));
  const Tensor kept = gradient(x);
  backward(plus(x, x));
  CHECK(kept.item() == 2);
  CHECK(gradient(x).item() == 4);
}

TEST_CASE("nothing is recorded without a leaf, under NoGrad, or after detach") {
  const Tensor x = leaf(2);
  CHECK_FALSE(requires_grad(times(scalar(1), scalar(2))));
  {
    const NoGrad no_grad;
    CHECK_FALSE(requires_grad(times(x, x)));
    {
      const RecordingScope on(true);
      CHECK(requires_grad(times(x, x)));
    }
  }
  CHECK_FALSE(requires_grad(detach(x)));
  backward(times(detach(times(x, x)), x));
  CHECK(gradient(x).item() == 4);
  CHECK(tape_size() == 0);
}

TEST_CASE("a second sweep of a freed tape is a clear error, a retained one works") {
  const Tensor x = leaf(3);
  const Tensor y = times(x, x);
  backward(y, {}, {.retain = true});
  backward(y);
  CHECK(gradient(x).item() == 12);
  CHECK_THROWS_WITH_AS(backward(y), doctest::Contains("freed by an earlier backward()"), ShapeError);
  const Tensor z = plus(y, x);  // a new node on top of the freed one
  CHECK_THROWS_WITH_AS(backward(z),
                       "mul: this part of the tape was freed by an earlier backward(); sweep with retain to "
                       "keep it",
                       ShapeError);
}

TEST_CASE("a result with many elements needs a cotangent of its shape and dtype") {
  const Tensor x = require_grad(Tensor::from<double>({1, 2}, {2}));
  const Tensor y = times(x, x);
  CHECK_THROWS_WITH(backward(y), "backward: a result of shape (2,) needs a cotangent of that shape");
  CHECK_THROWS_AS(backward(y, Tensor::full({3}, 1, DType::float64)), ShapeError);
  CHECK_THROWS_AS(backward(y, Tensor::full({2}, 1, DType::float32)), ShapeError);
  backward(y, Tensor::from<double>({1, 10}, {2}));
  CHECK(gradient(x).to_vector() == std::vector<double>{2, 40});
  CHECK_THROWS_WITH(backward(scalar(1)),
                    "backward: the result does not depend on any tensor that requires a gradient");
}

TEST_CASE("a wrong gradient shape names the op") {
  const Tensor x = leaf(1);
  const Tensor y =
      record("faulty", scalar(1), {&x}, [](const Tensor&) { return Gradients{Tensor::zeros({2})}; });
  CHECK_THROWS_WITH(backward(y), "faulty: gradient of input 0 has shape (2,) float32, expected (1,) float64");
  const Tensor z = record("counting", scalar(1), {&x}, [](const Tensor&) { return Gradients{}; });
  CHECK_THROWS_WITH(backward(z), "counting: returned 0 gradients for 1 inputs");
}

TEST_CASE("an error inside a gradient leaves no gradients waiting") {
  const Tensor x = leaf(1);
  const Tensor y = times(x, x);
  const Tensor bad = record("bad", scalar(1), {&y},
                            [](const Tensor&) -> Gradients { throw std::runtime_error("no gradient"); });
  CHECK_THROWS_WITH(backward(plus(bad, y)), "no gradient");
  CHECK_FALSE(gradient(x).defined());
  backward(y);
  CHECK(gradient(x).item() == 2);
}

TEST_CASE("results that are thrown away leave the tape empty") {
  const Tensor x = leaf(1);
  for (int i = 0; i < 10; ++i) times(plus(x, x), x);
  CHECK(tape_size() == 0);
  const Tensor kept = plus(x, x);
  for (int i = 0; i < 10; ++i) times(kept, x);
  CHECK(tape_size() == 1);
}

TEST_CASE("a depth of one million neither overflows the stack nor leaks") {
  const int64_t before = allocator().stats().active;
  {
    const Tensor x = leaf(1);
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = plus(y, x);
    CHECK(tape_size() == 1'000'000);
    backward(y);
    CHECK(gradient(x).item() == 1'000'001);
    CHECK(tape_size() == 1);  // y itself
    y = x;
    for (int i = 0; i < 1'000'000; ++i) y = times(y, x);  // dropped without a sweep
  }
  CHECK(tape_size() == 0);
  CHECK(allocator().stats().active == before);
}

TEST_CASE("backward frees what it has passed") {
  const Tensor x = require_grad(Tensor::zeros({1 << 16}, DType::float64));
  Tensor y = x;
  for (int i = 0; i < 8; ++i) y = times(y, x);
  const int64_t recorded = allocator().stats().active;
  backward(y, Tensor::full({1 << 16}, 1, DType::float64));
  y = {};
  CHECK(allocator().stats().active < recorded - 6 * x.bytes());
}

TEST_CASE("gradcheck accepts a right gradient and rejects a wrong one") {
  const Tensor a = Tensor::from<double>({0.5, -1.5}, {2}), b = Tensor::from<double>({2, 0.3}, {2});
  const auto right =
      gradcheck([](const std::vector<Tensor>& in) { return times(times(in[0], in[1]), in[0]); }, {a, b});
  CHECK(right.relative_error < 1e-9);
  const auto wrong = gradcheck(
      [](const std::vector<Tensor>& in) {
        return record("wrong", times(detach(in[0]), detach(in[0])), {&in[0]},
                      [](const Tensor& g) { return Gradients{g}; });
      },
      {a});
  CHECK(wrong.relative_error > 0.1);
  CHECK(wrong.worst_input == 0);
}
