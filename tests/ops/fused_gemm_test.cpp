// Tests of products with a fused epilogue if the device does not support algorithms that cuBLASLt suggests.
#include <doctest/doctest.h>

#include "core/cuda/devices.h"
#include "core/cuda/launch_count.h"
#include "core/emulation/failing_algorithms.h"
#include "ops/linear.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

#ifdef TAPEFORMER_CUDA

TEST_CASE("cuda: a product uses the first supported algorithm, or no fused epilogue if none is supported") {
  using cuda::emulation::failing_algorithms;
  if (!cuda::is_emulated()) {
    MESSAGE("skipped: only the emulation has a list of algorithms");
    return;
  }
  // The plans of products are cached by shape, so each product has another number of rows.
  int64_t rows = 20;
  const auto check_with = [&](const std::array<bool, 3>& fails) {
    failing_algorithms = fails;
    ++rows;
    const Tensor x = normal({rows, 1000}, 1, DType::float32), weight = normal({5, 1000}, 2, DType::float32),
                 bias = normal({5}, 3, DType::float32);
    for (const Device device : list_cuda_devices()) {
      const int64_t before = cuda::launch_count;
      const Tensor found = linear(x.to(device), weight.to(device), bias.to(device));
      CHECK(max_difference(found.to(kCpu), linear(x, weight, bias)) < 1e-3);
      return cuda::launch_count - before;
    }
    return int64_t{0};
  };
  const int64_t fused = check_with({false, false, false});
  CHECK(check_with({true, true, false}) == fused);
  CHECK(check_with({true, true, true}) == fused + 1);
  failing_algorithms = {};
}

#endif
