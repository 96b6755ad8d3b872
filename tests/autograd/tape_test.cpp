#include "autograd/tape.h"

#include <doctest/doctest.h>

#include <cmath>
#include <thread>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "ops/elementwise.h"
#include "tests/autograd/small_ops.h"

using namespace tapeformer;
using namespace tapeformer::small;

TEST_CASE("gradients of shared inputs add up") {
  const Tensor x = leaf(3);
  backward(plus(times(x, x), x));
  CHECK(gradient(x).item() == 7);
  backward(plus(x, x));  // adds to the gradient of x
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

TEST_CASE("nothing is recorded without a leaf, under NoGradScope, or after detach") {
  const Tensor x = leaf(2);
  CHECK_FALSE(requires_grad(times(scalar(1), scalar(2))));
  {
    const NoGradScope no_grad;
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

TEST_CASE("a second backward() throws, because the recorded ops are freed, unless `retain_tape` is set") {
  const Tensor x = leaf(3);
  const Tensor y = times(x, x);
  backward(y, {}, {.retain_tape = true});
  backward(y);
  CHECK(gradient(x).item() == 12);
  CHECK_THROWS_WITH_AS(
      backward(y),
      "backward: an earlier backward() freed the recorded ops of this result; run the forward pass again, "
      "or pass {.retain_tape = true} to the earlier call to keep them",
      ShapeError);
  const Tensor z = plus(y, x);  // `z` depends on `y`, whose op has been freed
  CHECK_THROWS_WITH_AS(
      backward(z),
      "backward: an earlier backward() freed the recorded op mul; run the forward pass again, or pass "
      "{.retain_tape = true} to the earlier call to keep them",
      ShapeError);
}

TEST_CASE("a result with many elements needs a cotangent of its shape and dtype") {
  const Tensor x = set_requires_grad(Tensor::from_vector<double>({1, 2}, {2}));
  const Tensor y = times(x, x);
  CHECK_THROWS_WITH(backward(y), "backward: a result of shape (2,) needs a cotangent of that shape");
  CHECK_THROWS_AS(backward(y, Tensor::full({3}, 1, DType::float64)), ShapeError);
  CHECK_THROWS_AS(backward(y, Tensor::full({2}, 1, DType::float32)), ShapeError);
  backward(y, Tensor::from_vector<double>({1, 10}, {2}));
  CHECK(gradient(x).to_vector() == std::vector<double>{2, 40});
  CHECK_THROWS_WITH(backward(scalar(1)),
                    "backward: the result does not depend on any tensor that requires a gradient");
}

TEST_CASE("the error about a gradient of the wrong shape names the op") {
  const Tensor x = leaf(1);
  const Tensor y =
      record("faulty", scalar(1), {&x}, [](const Tensor&) { return Gradients{Tensor::zeros({2})}; });
  CHECK_THROWS_WITH(backward(y), "faulty: gradient of input 0 has shape (2,) float32, expected (1,) float64");
  const Tensor z = record("counting", scalar(1), {&x}, [](const Tensor&) { return Gradients{}; });
  CHECK_THROWS_WITH(backward(z), "counting: returned 0 gradients for 1 inputs");
}

TEST_CASE("an error in a gradient function clears all pending gradients") {
  const Tensor x = leaf(1);
  const Tensor y = times(x, x);
  const Tensor bad = record("bad", scalar(1), {&y},
                            [](const Tensor&) -> Gradients { throw std::runtime_error("no gradient"); });
  CHECK_THROWS_WITH(backward(plus(bad, y)), "no gradient");
  CHECK_FALSE(gradient(x).defined());
  backward(y);
  CHECK(gradient(x).item() == 2);
}

TEST_CASE("the tape is empty after all results are destroyed") {
  const Tensor x = leaf(1);
  for (int i = 0; i < 10; ++i) times(plus(x, x), x);
  CHECK(tape_size() == 0);
  const Tensor kept = plus(x, x);
  for (int i = 0; i < 10; ++i) times(kept, x);
  CHECK(tape_size() == 1);
}

TEST_CASE("a graph of one million nodes neither overflows the stack nor leaks memory") {
  const int64_t before = get_device_allocator().stats().active_bytes;
  {
    const Tensor x = leaf(1);
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = plus(y, x);
    CHECK(tape_size() == 1'000'000);
    backward(y);
    CHECK(gradient(x).item() == 1'000'001);
    CHECK(tape_size() == 1);  // only the node of y remains
    y = x;
    for (int i = 0; i < 1'000'000; ++i) y = times(y, x);  // each earlier y is dropped without backward()
  }
  CHECK(tape_size() == 0);
  CHECK(get_device_allocator().stats().active_bytes == before);
}

TEST_CASE("backward() frees nodes whose gradient function has run") {
  const Tensor x = set_requires_grad(Tensor::zeros({1 << 16}, DType::float64));
  Tensor y = x;
  for (int i = 0; i < 8; ++i) y = times(y, x);
  const int64_t recorded = get_device_allocator().stats().active_bytes;
  backward(y, Tensor::full({1 << 16}, 1, DType::float64));
  y = {};
  CHECK(get_device_allocator().stats().active_bytes < recorded - 6 * x.bytes());
}

TEST_CASE("gradcheck accepts correct gradients and rejects wrong gradients") {
  const Tensor a = Tensor::from_vector<double>({0.5, -1.5}, {2}),
               b = Tensor::from_vector<double>({2, 0.3}, {2});
  const auto right =
      gradcheck([](const std::vector<Tensor>& in) { return times(times(in[0], in[1]), in[0]); }, {a, b});
  CHECK(right.max_relative_error < 1e-9);
  const auto wrong = gradcheck(
      [](const std::vector<Tensor>& in) {
        return record("wrong", times(detach(in[0]), detach(in[0])), {&in[0]},
                      [](const Tensor& g) { return Gradients{g}; });
      },
      {a});
  CHECK(wrong.max_relative_error > 0.1);
  CHECK(wrong.worst_input == 0);
}

TEST_CASE(
    "gradcheck repeats differences across a kink with a smaller step, and still rejects wrong gradients") {
  const std::vector<Tensor> inputs = {Tensor::from_vector<double>({1.5e-4, -3}, {2})};
  const auto kinked = [](const std::vector<Tensor>& in) { return relu(in[0]); };
  CHECK(gradcheck(kinked, inputs, {.step = 1e-4}).max_relative_error > 1e-3);
  CHECK(gradcheck(kinked, inputs, {.step = 1e-4, .kink_step = 1e-7}).max_relative_error < 1e-7);
  const auto wrong = [](const std::vector<Tensor>& in) {
    return record("wrong", detach(relu(in[0])), {&in[0]},
                  [](const Tensor& g) { return Gradients{times(g, g)}; });
  };
  CHECK(gradcheck(wrong, inputs, {.step = 1e-4, .kink_step = 1e-7}).max_relative_error > 0.1);
}

TEST_CASE("gradcheck_leaves names the leaf with the largest error, and the element that is not finite") {
  const Tensor a = set_requires_grad(Tensor::from_vector<double>({0.5, -1.5}, {2}));
  const Tensor b = set_requires_grad(Tensor::from_vector<double>({2, 0.3}, {2}));
  CHECK(gradcheck_leaves([&] { return times(a, b); }, {a, b}).max_relative_error < 1e-9);
  CHECK(gradcheck_leaves([&] { return times(a, detach(b)); }, {a, b}).worst_input == 1);
  CHECK(a.to_vector() == std::vector<double>{0.5, -1.5});
  const Tensor zero = set_requires_grad(Tensor::zeros({1}, DType::float64));
  const auto not_finite = gradcheck_leaves([&] { return log(zero); }, {zero});
  CHECK(not_finite.max_relative_error == INFINITY);
  CHECK(not_finite.message.starts_with("element 0: analytic "));
}

TEST_CASE("Needs is correct for an op with 70 inputs") {
  constexpr int kInputs = 70;  // more than the number of bits in a word
  std::vector<Tensor> inputs;
  for (int i = 0; i < kInputs; ++i) inputs.push_back(i % 3 == 0 ? leaf(i) : scalar(i));
  const Tensor y = record("total", scalar(0), inputs, [](const Tensor& g, NeededGradients needs) {
    Gradients gradients(kInputs);
    for (int i = 0; i < kInputs; ++i) {
      CHECK(needs[i] == (i % 3 == 0));
      if (needs[i]) gradients[static_cast<size_t>(i)] = times(g, scalar(i));
    }
    return gradients;
  });
  backward(y);
  for (int i = 0; i < kInputs; i += 3) CHECK(gradient(inputs[static_cast<size_t>(i)]).item() == i);
}

TEST_CASE("recording ops and backward() refuse tensors recorded on another thread") {
  const Tensor x = leaf(3);
  Tensor foreign;
  std::jthread([&] { foreign = times(x, x); }).join();
  CHECK_THROWS_WITH(
      plus(foreign, x),
      "add: an input was recorded on the tape of another thread; detach it, or run the op on that "
      "thread");
  CHECK_THROWS_WITH(backward(foreign), "backward: the result was recorded on the tape of another thread");
  backward(plus(detach(foreign), x));
  CHECK(gradient(x).item() == 1);
  {
    const NoGradScope no_grad;
    CHECK(plus(foreign, x).item() == 12);
  }
  CHECK(tape_size() == 0);
}

TEST_CASE(
    "recorded tensors may be dropped on any thread, while their thread records and after it has ended") {
  const int64_t before = get_device_allocator().stats().active_bytes;
  {
    const Tensor x = leaf(2);
    constexpr int kTensors = 2000;
    std::vector<Tensor> kept;
    for (int i = 0; i < kTensors; ++i) kept.push_back(times(plus(x, x), x));
    std::jthread other([&] {
      for (Tensor& tensor : kept) tensor = {};
    });
    for (int i = 0; i < kTensors; ++i)
      times(x, plus(x, x));  // this thread, which owns the tape, records at the same time
    other.join();
    CHECK(tape_size() == 0);

    std::vector<Tensor> orphans;
    std::jthread([&] {
      Tensor y = x;
      for (int i = 0; i < 100; ++i) orphans.push_back(y = times(y, x));
    }).join();
    std::jthread half([&] {
      for (size_t i = 0; i < 50; ++i) orphans[i] = {};
    });
    for (size_t i = 50; i < 100; ++i) orphans[i] = {};
  }
  CHECK(get_device_allocator().stats().active_bytes == before);
}

TEST_CASE("view(), clone() and to() of a tensor that requires a gradient throw instead of leaving the tape") {
  const Tensor x = set_requires_grad(Tensor::from_vector<double>({1, 2}, {2}));
  for (const Tensor& tensor : {x, times(x, x)}) {
    CHECK_THROWS_WITH_AS(tensor.view({2, 1}), doctest::Contains("view: the tensor requires a gradient"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(tensor.clone(), doctest::Contains("clone: the tensor requires a gradient"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(tensor.to(DType::float32), doctest::Contains("to: the tensor requires"), ShapeError);
    CHECK(tensor.to(kCpu).id() == tensor.id());
    CHECK(detach(tensor).clone().to_vector() == tensor.to_vector());
    CHECK_FALSE(requires_grad(tensor.alias()));
    const NoGradScope no_grad;
    CHECK(tensor.view({2, 1}).shape() == Shape{2, 1});
  }
}
