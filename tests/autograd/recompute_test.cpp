#include "autograd/recompute.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "tests/autograd/small_ops.h"

using namespace tapeformer;
using namespace tapeformer::small;

TEST_CASE("recompute gives the gradients of inputs and of parameters, nested too") {
  const Tensor x = leaf(2), weight = leaf(5);
  auto inner = [&](const std::vector<Tensor>& in) { return times(times(in[0], in[0]), weight); };
  auto outer = [&](const std::vector<Tensor>& in) { return times(recompute(inner, in, {weight}), in[0]); };
  const Tensor below = plus(x, x);                // value 4
  backward(recompute(outer, {below}, {weight}));  // below^3 * weight
  CHECK(gradient(x).item() == 2 * 3 * 16 * 5);
  CHECK(gradient(weight).item() == 64);
  CHECK(tape_size() == 1);  // `below`, which is still held
}

TEST_CASE("recompute is recorded for the sake of its parameters alone") {
  const Tensor weight = leaf(5);
  backward(
      recompute([&](const std::vector<Tensor>& in) { return times(in[0], weight); }, {scalar(3)}, {weight}));
  CHECK(gradient(weight).item() == 3);
}

TEST_CASE("gradients that wait below a recomputed segment are untouched by its backward pass") {
  const Tensor x = leaf(2);
  const Tensor shared = times(x, x);  // gets one gradient before the replay and one during the replay
  const Tensor replayed =
      recompute([](const std::vector<Tensor>& in) { return times(in[0], in[0]); }, {shared});
  backward(plus(replayed, shared));  // x^4 + x^2
  CHECK(gradient(x).item() == 4 * 8 + 2 * 2);
}

TEST_CASE("recompute holds its inputs, not its intermediates") {
  const Tensor x = require_grad(Tensor::full({1 << 16}, 1, DType::float64));
  auto deep = [](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    for (int i = 0; i < 16; ++i) y = times(y, in[0]);
    return y;
  };
  const int64_t before = device_allocator().stats().active;
  const Tensor y = recompute(deep, {x});
  CHECK(device_allocator().stats().active - before == y.bytes());
  backward(y, Tensor::full({1 << 16}, 1, DType::float64));
  CHECK(gradient(x).to_vector()[77] == 17);
}
