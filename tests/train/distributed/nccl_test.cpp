// Tests of NCCL with one process on a device. The names of the tests begin with "cuda: ", because scripts use
// this prefix to select tests of a device.
#include <doctest/doctest.h>

#include "autograd/tape.h"
#include "core/cuda/graph.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"
#include "train/distributed/gradient_reducer.h"
#ifdef TAPEFORMER_NCCL
#include "train/distributed/nccl_communicator.h"
#endif

using namespace tapeformer;
using namespace tapeformer::test;

#ifdef TAPEFORMER_NCCL
namespace {

constexpr int kSteps = 5;

// Trains two parameters for kSteps steps and returns their values. If `processes` is not null, a
// GradientReducer reduces the gradients, and all steps after the first replay a captured graph.
std::vector<double> train_weights(Device device, Communicator* processes) {
  const Tensor x = normal({64, 8}, 1).to(DType::float32).to(device);
  std::vector<Tensor> weights;
  for (const int salt : {2, 3})
    weights.push_back(set_requires_grad(normal({64, 8}, salt).to(DType::float32).to(device)));
  std::unique_ptr<GradientReducer> reducer;
  if (processes)  // one bucket per parameter
    reducer = std::make_unique<GradientReducer>(*processes, weights, ReducerOptions{.max_bucket_bytes = 1});
  const auto step = [&] {
    const Tensor loss = sum(square(mul(mul(x, weights[0]), weights[1])));
    if (reducer) {
      reducer->begin_step();
      backward(loss, {}, {.on_complete = [&](const Tensor& leaf) { reducer->mark_complete(leaf); }});
      reducer->finish_step();
    } else {
      backward(loss);
    }
    for (const Tensor& weight : weights) {
      weight.add_scaled(gradient(weight), -1e-3);
      set_gradient(weight, {});
    }
  };
  step();
  if (reducer) {
    cuda::Graph graph(device, 1, step);
    for (int i = 1; i < kSteps; ++i) graph.launch(0);
  } else {
    for (int i = 1; i < kSteps; ++i) step();
  }
  std::vector<double> values = weights[0].to_vector();
  for (const double value : weights[1].to_vector()) values.push_back(value);
  return values;
}

}  // namespace
#endif

TEST_CASE("cuda: captured training steps whose gradients NCCL reduces equal steps without reduction") {
#ifdef TAPEFORMER_NCCL
  for (const Device device : list_cuda_devices()) {
    const auto processes = make_nccl_communicator(get_single_process_communicator(), device);
    CHECK(train_weights(device, processes.get()) == train_weights(device, nullptr));
  }
#else
  MESSAGE("skipped: this build has no NCCL");
#endif
}

TEST_CASE("cuda: NCCL reduces and broadcasts tensors of a device, also in a graph") {
#ifdef TAPEFORMER_NCCL
  for (const Device device : list_cuda_devices()) {
    const auto processes = make_nccl_communicator(get_single_process_communicator(), device);
    CHECK(processes->is_stream_ordered());
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const Tensor x = normal({1000}).to(dtype).to(device);
      const Tensor before = x.clone();
      processes->all_reduce(x);
      processes->broadcast(x);
      CHECK(max_difference(x.to(DType::float32), before.to(DType::float32)) == 0);
    }
    const Tensor x = Tensor::full({100}, 1, DType::float32, device);
    Tensor y;
    const auto work = [&] {
      y = mul(x, 2);
      processes->start_all_reduce(y);
      processes->wait();
      y = add(y, 1);
    };
    work();
    cuda::Graph graph(device, 1, work);
    for (const double value : {2.0, 5.0}) {
      x.fill(value);
      graph.launch(0);
      CHECK(y.to_vector()[99] == 2 * value + 1);
    }
  }
#else
  MESSAGE("skipped: this build has no NCCL");
#endif
}
