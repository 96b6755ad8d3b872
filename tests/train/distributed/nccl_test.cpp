// Tests of NCCL with one process on a device. Their names begin with "cuda: ", because scripts select the
// tests of a device by this prefix.
#include <doctest/doctest.h>

#include "core/cuda/graph.h"
#include "ops/elementwise.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"
#ifdef TAPEFORMER_NCCL
#include "train/distributed/nccl_communicator.h"
#endif

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("cuda: NCCL reduces and broadcasts tensors of a device, also in a graph") {
#ifdef TAPEFORMER_NCCL
  if (other_devices().empty()) MESSAGE("skipped: " << why_no_device());
  for (const Device device : other_devices()) {
    const auto processes = make_nccl_communicator(single_process(), device);
    CHECK(processes->launches_on_device());
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
