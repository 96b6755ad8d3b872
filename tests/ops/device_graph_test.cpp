// Tests of CUDA graphs, which record the work of a device and replay it.
#include <doctest/doctest.h>

#include "core/allocator.h"
#include "core/cuda/graph.h"
#include "core/cuda/transfers.h"
#include "core/readback.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/optimizer_step.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

DropoutMask mask_at(uint64_t step) {
  return {0.3, RandomStream(5, "graph", step)};
}

}  // namespace

TEST_CASE(
    "cuda: a graph replays the recorded ops with the current contents of memory and the random numbers of "
    "the step") {
  if constexpr (kHasCuda)
    for (const Device device : list_cuda_devices()) {
      const Tensor x = normal({7, 9}).to(device), w = normal({9, 5}).to(device);
      Tensor out;
      const auto work = [&](uint64_t step) { return matmul(dropout(x, mask_at(step)), w); };
      work(0);
      cuda::Graph graph(device, 2, [&] { out = work(4); });
      for (const uint64_t step : {4, 6, 8, 20, 22, 4}) {  // the steps do not have to be consecutive
        CAPTURE(step);
        x.copy_from(normal({7, 9}, static_cast<int>(step)));
        graph.launch(static_cast<int64_t>(step) - 4);
        CHECK(max_difference(out, work(step)) == 0);
      }
      CHECK(max_difference(work(4), work(6)) > 0.1);
    }
}

TEST_CASE("cuda: no other tensor uses the memory of a graph before the graph is destroyed") {
  if constexpr (kHasCuda)
    for (const Device device : list_cuda_devices()) {
      const Tensor x = normal({1000}).to(device);
      Tensor out;
      const auto work = [&] { return add(mul(x, 3), mul(exp(x), 2)); };
      const Tensor expected = work();
      const int64_t active = get_device_allocator(device).stats().active_bytes;
      {
        cuda::Graph graph(device, 1, [&] { out = work(); });
        std::vector<Tensor> others;
        for (int i = 0; i < 8; ++i) others.push_back(Tensor::full({1000}, i, DType::float64, device));
        graph.launch(0);
        CHECK(max_difference(out, expected) == 0);
        for (int i = 0; i < 8; ++i)
          CHECK(max_difference(others[static_cast<size_t>(i)], Tensor::full({1000}, i, DType::float64)) == 0);
        out = {};
      }
      CHECK(get_device_allocator(device).stats().active_bytes == active);
    }
}

TEST_CASE("cuda: an op that a graph cannot repeat is an error with its name, and the device remains usable") {
  if constexpr (kHasCuda)
    for (const Device device : list_cuda_devices()) {
      const Tensor x = normal({4, 4}).to(device), rule = copy_rule_to_device(device, {});
      const auto message_of = [&](const std::function<void()>& work) {
        try {
          cuda::Graph graph(device, 1, work);
        } catch (const DeviceError& error) {
          return std::string(error.what());
        }
        return std::string("none");
      };
      const auto names = [&](const std::function<void()>& work, const std::string& op,
                             const std::string& what) {
        const std::string message = message_of(work);
        CAPTURE(message);
        CHECK(message.find(op) == 0);
        CHECK(message.find(what) != std::string::npos);
        CHECK(message.ends_with("which a CUDA graph cannot repeat"));
        CHECK(max_difference(matmul(x, x).to(kCpu), matmul(x.to(kCpu), x.to(kCpu))) < 1e-12);
      };
      names([&] { x.to_vector(); }, "a step", "copies to the host's memory");
      names([&] { normal({4}).to(device); }, "a step", "copies from the host's memory");
      names([&] { normal({1 << 20}).to(device); }, "a step", "copies from the host's memory");
      names([&] { Readback(x.view({}, {})); }, "Readback", "copies to the host's memory");
      names([&] { cuda::synchronize(device); }, "a step", "waits for the device");
      names([&] { overwrite_rule(rule, {}); }, "a step", "copies from the host's memory");
      names([&] { cuda::Graph inner(device, 1, [] {}); }, "Graph", "records a graph");
      const int64_t active = get_device_allocator(device).stats().active_bytes;
      mul(x, 2);
      CHECK_THROWS_AS(cuda::Graph(device, 1,
                                  [&] {
                                    const Tensor kept = mul(x, 2);
                                    throw std::runtime_error("from inside");
                                  }),
                      std::runtime_error);
      CHECK(get_device_allocator(device).stats().active_bytes == active);
    }
}
