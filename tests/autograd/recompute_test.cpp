#include "autograd/recompute.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "tests/autograd/small_ops.h"

using namespace tapeformer;
using namespace tapeformer::small;

TEST_CASE("recompute() gives the gradients of inputs and parameters, also in nested calls") {
  const Tensor x = leaf(2), weight = leaf(5);
  auto inner = [&](const std::vector<Tensor>& in) { return times(times(in[0], in[0]), weight); };
  auto outer = [&](const std::vector<Tensor>& in) { return times(recompute(inner, in, {weight}), in[0]); };
  const Tensor input = plus(x, x);                // the value of `input` is 4
  backward(recompute(outer, {input}, {weight}));  // recompute() returns input^3 * weight
  CHECK(gradient(x).item() == 2 * 3 * 16 * 5);
  CHECK(gradient(weight).item() == 64);
  CHECK(tape_size() == 1);  // only the node of `input` remains
}

TEST_CASE("recompute() is recorded if only its parameters require a gradient") {
  const Tensor weight = leaf(5);
  backward(
      recompute([&](const std::vector<Tensor>& in) { return times(in[0], weight); }, {scalar(3)}, {weight}));
  CHECK(gradient(weight).item() == 3);
}

TEST_CASE("a segment may use none of its parameters") {
  const Tensor unused = leaf(5), x = leaf(2);
  const Tensor y = recompute([](const std::vector<Tensor>&) { return scalar(3); }, {x}, {unused});
  backward(plus(y, x));
  CHECK(gradient(x).item() == 1);
  CHECK_FALSE(gradient(unused).defined());
}

TEST_CASE("the replay of a segment does not use the pending gradients of its inputs") {
  const Tensor x = leaf(2);
  const Tensor shared = times(x, x);  // receives one gradient before the replay and one during the replay
  const Tensor replayed =
      recompute([](const std::vector<Tensor>& in) { return times(in[0], in[0]); }, {shared});
  backward(plus(replayed, shared));  // differentiates x^4 + x^2
  CHECK(gradient(x).item() == 4 * 8 + 2 * 2);
}

TEST_CASE("recompute() keeps its inputs and no intermediate results") {
  const Tensor x = set_requires_grad(Tensor::full({1 << 16}, 1, DType::float64));
  auto deep = [](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    for (int i = 0; i < 16; ++i) y = times(y, in[0]);
    return y;
  };
  const int64_t before = get_device_allocator().stats().active_bytes;
  const Tensor y = recompute(deep, {x});
  CHECK(get_device_allocator().stats().active_bytes - before == y.bytes());
  backward(y, Tensor::full({1 << 16}, 1, DType::float64));
  CHECK(gradient(x).to_vector()[77] == 17);
}
