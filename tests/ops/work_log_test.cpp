// Tests that cuda::WorkLog records the kernels, matrix products and copies of a device, and how many bytes
// they access.
#include <doctest/doctest.h>

#include "core/cuda/devices.h"
#include "core/cuda/work_log.h"
#include "ops/linear.h"
#include "ops/operators.h"
#include "ops/view.h"
#include "tests/support/devices.h"

using namespace tapeformer;
using namespace tapeformer::test;

#ifdef TAPEFORMER_CUDA

namespace {

// Returns the WorkRecords of the device work that f() submits. The record of a kernel counts the bytes of a
// tensor only if the tensor was allocated in a BlockRecordingScope.
template <class F>
std::vector<cuda::WorkRecord> records_of(F&& f) {
  const cuda::WorkLog log;
  f();
  return log.records();
}

}  // namespace

TEST_CASE("cuda: the work log counts each array of a kernel once") {
  for (const Device device : list_cuda_devices()) {
    const BlockRecordingScope recording;
    const Tensor x = Tensor::full({10, 10}, 1, DType::float32, device);
    const auto records = records_of([&] { mul(x, 2.0); });
    REQUIRE(records.size() == 1);
    CHECK(records[0].kind == cuda::WorkKind::kernel);
    CHECK(std::string(records[0].where.file).ends_with("elementwise.cu"));
    CHECK(records[0].bytes == 2 * 100 * 4);
    CHECK(records[0].block_count == 1);
    CHECK(records[0].thread_count == 256);
    // Both arguments are the same array, whose bytes are counted once.
    CHECK(records_of([&] { mul(x, x); })[0].bytes == 2 * 100 * 4);
    const Tensor y = Tensor::full({10, 10}, 1, DType::float32, device);
    CHECK(records_of([&] { mul(x, y); })[0].bytes == 3 * 100 * 4);
  }
}

TEST_CASE("cuda: the work log counts updates in place, parts of arrays and copies") {
  for (const Device device : list_cuda_devices()) {
    const BlockRecordingScope recording;
    const Tensor x = Tensor::full({8, 12}, 1, DType::float32, device), y = x.clone();
    CHECK(records_of([&] { x.add_scaled(y); })[0].bytes == 3 * 96 * 4);
    const Tensor part = slice(x, 1, 0, 4);
    CHECK(records_of([&] { part.clone(); })[0].bytes == 2 * 32 * 4);
    const auto copies = records_of([&] { x.to(kCpu); });
    REQUIRE(copies.size() == 1);
    CHECK(copies[0].kind == cuda::WorkKind::copy);
    CHECK(copies[0].bytes == 96 * 4);
  }
}

TEST_CASE("cuda: the work log counts the operations of products") {
  for (const Device device : list_cuda_devices()) {
    const Tensor x = Tensor::full({5, 16}, 1, DType::float32, device),
                 weight = Tensor::full({8, 16}, 1, DType::float32, device),
                 bias = Tensor::full({8}, 1, DType::float32, device);
    const auto records = records_of([&] { linear(x, weight, bias); });
    REQUIRE(records.size() == 1);
    CHECK(records[0].kind == cuda::WorkKind::product);
    CHECK(records[0].op == "linear");
    CHECK(records[0].flop == 2 * 5 * 16 * 8);
    CHECK(records[0].bytes == 4 * (5 * 16 + 8 * 16 + 5 * 8));
    CHECK(records[0].product.epilogue == "bias");
  }
}

TEST_CASE("cuda: skipped work is logged and not computed") {
  if (!cuda::is_emulated()) {
    MESSAGE("skipped: only the emulation skips work");
    return;
  }
  for (const Device device : list_cuda_devices()) {
    const Tensor x = Tensor::full({4}, 1, DType::float32, device);
    const auto records = records_of([&] {
      const cuda::SkippedWorkScope skipped;
      x.fill(2);
    });
    CHECK(records.size() == 1);
    CHECK(x.to_vector() == std::vector<double>(4, 1));
    x.fill(2);
    CHECK(x.to_vector() == std::vector<double>(4, 2));
  }
}

#endif
