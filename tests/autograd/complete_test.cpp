// Tests of the callback BackwardOptions::on_complete. The tests check that backward() completes the leaves in
// the expected order, and that the gradient of a leaf is complete when on_complete is called for the leaf.
#include <doctest/doctest.h>

#include "autograd/chunked.h"
#include "autograd/complete.h"
#include "autograd/recompute.h"
#include "autograd/reversible.h"
#include "tests/autograd/small_ops.h"

using namespace tapeformer;
using namespace tapeformer::small;

namespace {

// A helper that runs backward() for named leaves and checks the calls of on_complete().
class Completed {
 public:
  explicit Completed(std::vector<std::pair<std::string, Tensor>> leaves) : leaves_(std::move(leaves)) {}

  // Runs backward(), and returns the names of the leaves in the order of the calls of on_complete(). Checks
  // that the gradient of a leaf does not change after on_complete(leaf).
  std::string order(const Tensor& result) {
    std::string names;
    std::vector<double> values(leaves_.size(), -1);
    backward(result, {}, {.on_complete = [&](const Tensor& leaf) {
               for (size_t i = 0; i < leaves_.size(); ++i) {
                 if (leaves_[i].second.data<double>() != leaf.data<double>()) continue;
                 names += leaves_[i].first;
                 CHECK(values[i] == -1);  // each leaf is completed once
                 values[i] = value_of(leaf);
               }
             }});
    for (size_t i = 0; i < leaves_.size(); ++i)
      if (values[i] != -1) CHECK(value_of(leaves_[i].second) == values[i]);
    return names;
  }

 private:
  static double value_of(const Tensor& leaf) { return gradient(leaf).defined() ? gradient(leaf).item() : 0; }

  std::vector<std::pair<std::string, Tensor>> leaves_;
};

}  // namespace

TEST_CASE("backward() completes a leaf after the first op that uses it") {
  const Tensor a = leaf(2), b = leaf(3), c = leaf(5);
  const Tensor ab = times(a, b), cb = times(c, b);  // the first recorded op uses a and b
  const Tensor y = times(ab, cb);
  CHECK(Completed({{"a", a}, {"b", b}, {"c", c}}).order(y) == "cba");
  CHECK(gradient(b).item() == 2 * 2 * 3 * 5);
}

TEST_CASE("backward() completes a leaf that gets no gradient, and a result that is a leaf") {
  const Tensor a = leaf(2), b = leaf(3);
  const Tensor unused = times(a, b);
  CHECK(Completed({{"a", a}, {"b", b}}).order(times(a, a)) == "ba");
  CHECK_FALSE(gradient(b).defined());
  CHECK(Completed({{"a", a}}).order(a) == "a");
}

TEST_CASE("backward() does not complete leaves of ops that were recorded after the result") {
  const Tensor a = leaf(2), b = leaf(3);
  const Tensor y = times(a, a), after = times(b, b);
  CHECK(Completed({{"a", a}, {"b", b}}).order(y) == "a");
}

TEST_CASE("backward() completes the leaves of replayed segments after the last replay that uses them") {
  const Tensor x = leaf(2), w = leaf(5), v = leaf(7);
  const auto segment = [&](const std::vector<Tensor>& in) { return times(times(in[0], v), w); };
  const Tensor twice = recompute(segment, {recompute(segment, {times(x, x)}, {v, w})}, {v, w});
  CHECK(Completed({{"x", x}, {"w", w}, {"v", v}}).order(times(twice, x)) == "wvx");
  CHECK(gradient(w).item() == 2 * 5 * 49 * 8);

  const Tensor rows = set_requires_grad(Tensor::full({4}, 1, DType::float64)), u = leaf(3);
  const auto function = [&](const Tensor& part, int64_t) { return times(part, u); };
  set_gradient(x, {});
  int calls = 0;
  backward(compute_in_chunks(function, rows, 4, {u}), Tensor::full({4}, 1, DType::float64),
           {.on_complete = [&](const Tensor& leaf) {
             ++calls;
             if (leaf.numel() == 1) CHECK(gradient(u).item() == 4);
           }});
  CHECK(calls == 2);
}

TEST_CASE("backward() completes the leaves of a reversible block after the first block that uses them") {
  const auto half = [](double value) {
    return set_requires_grad(Tensor::full({2, 1}, value, DType::float64));
  };
  const Tensor x1 = half(1), x2 = half(2), shared = half(3), a = half(0.5), b = half(0.25),
               used_before = half(4);
  std::string events;
  const auto block = [&](const std::string& name, const Tensor& weight) {
    const auto f = [&events, name, weight](const Tensor& rows, int64_t) {
      events += name;
      return times(rows, weight);
    };
    const auto g = [&](const Tensor& rows, int64_t) { return times(times(rows, shared), used_before); };
    return ReversibleBlock{{{f}, {g}}, {weight, shared, used_before}};
  };
  const Tensor y = run_reversible({block("0", a), block("1", b)}, times(x1, used_before), x2);
  events.clear();
  std::vector<std::pair<Tensor, std::vector<double>>> completed;
  backward(y, Tensor::full({2, 2}, 1, DType::float64), {.on_complete = [&](const Tensor& leaf) {
             completed.emplace_back(leaf, gradient(leaf).to_vector());
             for (const auto& [name, tensor] :
                  {std::pair{"a", a}, {"b", b}, {"s", shared}, {"u", used_before}, {"x", x1}, {"y", x2}})
               if (tensor.id() == leaf.id()) events += name;
           }});
  CHECK(events == "1b0asyux");
  for (const auto& [leaf, values] : completed) CHECK(values == gradient(leaf).to_vector());
}

TEST_CASE("tape::complete() does nothing outside of backward() and for leaves that the node does not use") {
  const Tensor a = leaf(2), b = leaf(3);
  tape::report_gradient_complete(a);
  const Tensor product = record("product", times(detach(a), detach(b)), {&a}, [&](const Tensor& g) {
    tape::report_gradient_complete(b);
    return Gradients{times(g, detach(b))};
  });
  CHECK(Completed({{"a", a}, {"b", b}}).order(product) == "a");
}

TEST_CASE("an exception in on_complete ends backward() and clears pending gradients") {
  const Tensor a = leaf(2), b = leaf(3);
  const Tensor y = times(times(a, a), b);
  CHECK_THROWS_WITH(
      backward(y, {}, {.on_complete = [](const Tensor&) { throw std::runtime_error("complete"); }}),
      "complete");
  CHECK_FALSE(gradient(a).defined());
  backward(times(a, b));
  CHECK(gradient(a).item() == 3);
}
