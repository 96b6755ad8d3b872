#include "ops/rounded_weights.h"

#include <doctest/doctest.h>

#include "core/cuda/launch_count.h"
#include "ops/linear.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct Layer {
  Tensor x, weight, bias;
};

Layer layer_on(Device device) {
  const auto leaf = [&](const Tensor& t) {
    return set_requires_grad(t.to(DType::float32).to(device).alias());
  };
  return {set_requires_grad(normal({9, 24}, 1).to(DType::bfloat16).to(device).alias()),
          leaf(normal({16, 24}, 2)), leaf(normal({16}, 3))};
}

// Returns the result of a layer and the gradients of x, weight and bias.
std::vector<Tensor> compute_result_and_gradients(const Layer& layer) {
  const Tensor y = linear(layer.x, layer.weight, layer.bias, Activation::relu);
  backward(y, normal(y.shape(), 4).to(y.dtype()).to(y.device()));
  std::vector<Tensor> all{detach(y).clone()};
  for (const Tensor& leaf : {layer.x, layer.weight, layer.bias}) {
    all.push_back(gradient(leaf).clone());
    set_gradient(leaf, {});
  }
  return all;
}

bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].to_vector() != b[i].to_vector()) return false;
  return true;
}

}  // namespace

TEST_CASE("cuda: layers with weights that are rounded once have the same results") {
  for (const Device device : list_cuda_devices()) {
    const Bfloat16Scope precision(device);
    const Layer layer = layer_on(device);
    const std::vector<Tensor> expected = compute_result_and_gradients(layer);
    const RoundedWeights rounded({layer.weight, layer.bias});
    rounded.update();
    {
      const RoundedWeights::Scope scope(rounded);
      CHECK(equal(compute_result_and_gradients(layer), expected));
      // The layer reads the rounded copies, so a change of the weight has no effect before update().
      detach(layer.weight).fill(0);
      CHECK(equal({compute_result_and_gradients(layer)[0]}, {expected[0]}));
    }
    CHECK(!equal({compute_result_and_gradients(layer)[0]}, {expected[0]}));
    rounded.update();
    const RoundedWeights::Scope scope(rounded);
    CHECK(!equal({compute_result_and_gradients(layer)[0]}, {expected[0]}));
  }
}

#ifdef TAPEFORMER_CUDA
TEST_CASE("cuda: layers with weights that are rounded once need fewer launches") {
  for (const Device device : list_cuda_devices()) {
    const Bfloat16Scope precision(device);
    const Layer layer = layer_on(device);
    const auto launches = [&] {
      const int64_t before = cuda::launch_count;
      compute_result_and_gradients(layer);
      return cuda::launch_count - before;
    };
    const int64_t before = launches();
    const RoundedWeights rounded({layer.weight, layer.bias});
    rounded.update();
    const RoundedWeights::Scope scope(rounded);
    // The forward and the backward pass both read the rounded copy of the weight. Without the rounded copy,
    // each of the two passes launches a kernel that rounds the weight.
    CHECK(launches() == before - 2);
  }
}
#endif

TEST_CASE("cuda: a layer with concatenated adjacent weights uses their rounded copies") {
  for (const Device device : list_cuda_devices()) {
    const Bfloat16Scope precision(device);
    const Tensor all = normal({48, 24}, 2, DType::float32).to(device);
    const Tensor first = slice(all, 0, 0, 32), second = slice(all, 0, 32, 48);
    const Tensor x = normal({9, 24}, 1).to(DType::bfloat16).to(device);
    const auto result = [&] { return linear(x, concat({first, second}, 0), {}).to_vector(); };
    const std::vector<double> expected = result();
    // The order of the weights in the list differs from their order in memory.
    const RoundedWeights rounded({second, first});
    rounded.update();
    const RoundedWeights::Scope scope(rounded);
    all.fill(0);
    CHECK(result() == expected);
  }
}

TEST_CASE("weights that no product rounds have no rounded copies") {
  const Tensor weight = normal({4, 4}, 1, DType::float32);
  const RoundedWeights rounded({weight, normal({4}, 2)});
  rounded.update();
  const RoundedWeights::Scope scope(rounded);
  CHECK(cuda::rounded_copies->empty());
}
