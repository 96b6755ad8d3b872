// Tests of tensors on a CUDA device, real or emulated.
#include <doctest/doctest.h>

#include "core/allocator.h"
#include "core/cuda/transfers.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Calls f(device) for each device of list_cuda_devices().
template <class F>
void on_other_devices(F&& f) {
  for (const Device device : list_cuda_devices()) f(device);
}

}  // namespace

TEST_CASE("cuda: tensors are unchanged after copies to the device and back") {
  on_other_devices([](Device device) {
    const Tensor x = normal({3, 5, 7});
    const Tensor there = x.to(device);
    CHECK(there.device() == device);
    CHECK(there.to(device).id() == there.id());
    CHECK(there.to(kCpu).to_vector() == x.to_vector());
    CHECK(there.to_vector() == x.to_vector());
    CHECK(Tensor::full({}, 2.5, DType::float32, device).item() == 2.5);
    CHECK(Tensor::zeros({7, 3}, DType::int64, device).to_vector() == std::vector<double>(21, 0.0));
    CHECK(Tensor::zeros({0, 3}, DType::float32, device).clone().to_vector().empty());
  });
}

TEST_CASE("cuda: copies follow strides and convert every dtype as the CPU does") {
  on_other_devices([](Device device) {
    const Tensor x = uniform({4, 5, 6}, 0, 250);
    const Shape shape{6, 4, 5}, strides{1, 30, 6};
    const Tensor there = x.to(device);
    CHECK(there.view(shape, strides).clone().to_vector() == x.view(shape, strides).clone().to_vector());
    const DType all[] = {DType::float32, DType::float64, DType::bfloat16,
                         DType::int32,   DType::int64,   DType::uint8};
    for (const DType from : all)
      for (const DType to : all) {
        const Tensor here = x.to(from);
        CHECK(here.to(device).to(to).to_vector() == here.to(to).to_vector());
        const Tensor target = Tensor::zeros({6, 4, 5}, to, device);
        target.copy_from(here.view(shape, strides));  // converts device, layout and dtype
        CHECK(target.to_vector() == here.view(shape, strides).to(to).to_vector());
      }
    const Tensor columns = Tensor::zeros({4, 5, 6}, DType::float64, device);
    columns.view(shape, strides).copy_from(x.view(shape, strides));
    CHECK(columns.to_vector() == x.to_vector());
    const Tensor sum = there.clone(), expected = x.clone();
    sum.view(shape, strides).add_scaled(there.view(shape, {20, 5, 1}), -0.5);
    expected.view(shape, strides).add_scaled(x.view(shape, {20, 5, 1}), -0.5);
    CHECK(max_difference(sum, expected) < 1e-12);
  });
}

TEST_CASE("cuda: host memory of any size may change immediately after its copy to the device") {
  on_other_devices([](Device device) {
    for (const int64_t n : {int64_t{1}, int64_t{1} << 20, (int64_t{9} << 20) / 4 + 1}) {
      CAPTURE(n);
      const Tensor x = Tensor::full({n}, 1, DType::float32),
                   there = Tensor::empty({n}, DType::float32, device);
      for (int64_t i = 0; i < n; i += 1021) x.data<float>()[i] = static_cast<float>(i % 509);
      const Tensor kept = x.clone();
      there.copy_from(x);
      x.fill(7);
      CHECK(max_difference(there, kept) == 0);
    }
  });
}

TEST_CASE("cuda: access to a tensor on another device than current_device is an error") {
  on_other_devices([](Device device) {
    const Tensor there = Tensor::zeros({2, 3}, DType::float32, device);
    CHECK_THROWS_WITH_AS(
        there.data<float>(),
        "tensor of shape (2, 3) is on cuda:0, but the op runs on cpu; copy it with to(device)", ShapeError);
    const DeviceScope scope(device);
    CHECK_THROWS_AS(Tensor::zeros({2}).data<float>(), ShapeError);
  });
}

TEST_CASE("cuda: ops use borrowed memory of the device between the work of another stream") {
  on_other_devices([](Device device) {
    if constexpr (kHasCuda) {
      const Tensor source = normal({4, 6}).to(DType::float32), owner = source.to(device);
      const Tensor columns = Tensor::borrow(owner.raw_data(), {6, 4}, {1, 6}, DType::float32, device);
      CHECK(columns.device() == device);
      {
        const cuda::ForeignStreamScope order(device, nullptr);  // the default stream
        columns.add_scaled(columns.clone());
      }
      source.add_scaled(source.clone());
      CHECK(owner.to_vector() == source.to_vector());
    }
  });
}

TEST_CASE("cuda: the allocator reuses and counts blocks, and its errors contain a remedy") {
  on_other_devices([](Device device) {
    CachingAllocator& pool = get_device_allocator(device);
    pool.trim();
    const MemoryStats before = pool.stats();
    void* first = nullptr;
    {
      const Tensor x = Tensor::empty({250}, DType::float32, device);
      first = x.raw_data();
      CHECK(pool.stats().active_bytes == before.active_bytes + 1024);
    }
    CHECK(pool.stats().active_bytes == before.active_bytes);
    CHECK(pool.stats().cached_bytes == before.cached_bytes + 1024);
    CHECK(Tensor::empty({256}, DType::float32, device).raw_data() == first);
    const int64_t limit = pool.limit();
    pool.set_limit(pool.stats().active_bytes + (1 << 20));
    CHECK_THROWS_WITH_AS(Tensor::empty({1 << 20}, DType::float32, device),
                         doctest::Contains("asked for 4 MiB with 1 MiB free"), OutOfMemoryError);
    pool.set_limit(limit);
  });
}

TEST_CASE("choose_device() returns the named device, and refuses devices that do not exist") {
  CHECK(choose_device("cpu").device == kCpu);
  CHECK_THROWS_AS(choose_device("cuda:99"), DeviceError);
  CHECK_FALSE(choose_device("auto").reason.empty());
  if constexpr (kHasCuda) {
    if (cuda::is_emulated()) {
      CHECK(choose_device("auto").device == kCpu);
      CHECK(choose_device("cuda-emulated").device == Device{DeviceType::cuda, 0});
      CHECK_THROWS_WITH_AS(choose_device("cuda"),
                           doctest::Contains("no CUDA backend, only its emulation for tests"), DeviceError);
      return;
    }
  }
  CHECK_THROWS_AS(choose_device("cuda-emulated"), DeviceError);
}
