// Tests that the access log counts memory accesses correctly. The kernels in this file are instrumented.
#include <doctest/doctest.h>

#include "core/access_log.h"
#include "core/cuda/devices.h"
#include "core/cuda/kernel.h"
#include "core/tensor.h"

using namespace tapeformer;
using namespace tapeformer::cuda;

namespace {

const Device kDevice{DeviceType::cuda, 0};
constexpr unsigned kBlocks = 2, kBlockThreads = 64;
constexpr int64_t kWarps = kBlocks * kBlockThreads / 32;
constexpr int64_t kElements = int64_t{kBlocks} * kBlockThreads * 8 + 8;

// Copies elements offset + stride * i, one for each thread i.
__global__ void copy_strided(const float* x, float* y, int64_t stride, int64_t offset) {
  const int64_t i = offset + stride * first_element();
  y[i] = x[i];
}
__global__ void copy_packs(const float* x, float* y) {
  Pack<float>::load(x + 4 * first_element()).store(y + 4 * first_element());
}
__global__ void copy_groups(const float* x, float* y) {
  float values[8];
  load_group<8>(x + 8 * first_element(), values);
  for (float& value : values) value *= 2;
  store_group<8>(y + 8 * first_element(), values);
}
__global__ void copy_bytes(const uint8_t* x, uint8_t* y) {
  y[first_element()] = x[first_element()];
}
// Reads x[0] in all threads. The test passes x[0] = 0, so no thread executes the store to y. Without the
// store to y, the compiler could remove the read of x[0].
__global__ void read_one(const float* x, float* y) {
  if (x[0] > 0) y[0] = 1;
}
// Transposes a 32 x 32 matrix through shared memory, with a block of one warp. In shared memory, adjacent
// rows of the matrix are kStride elements apart.
template <int kStride>
__global__ void transpose(const float* x, float* y) {
  __shared__ float tile[32 * kStride];
  for (unsigned row = 0; row < 32; ++row) tile[row * kStride + threadIdx.x] = x[row * 32 + threadIdx.x];
  __syncthreads();
  for (unsigned row = 0; row < 32; ++row) y[row * 32 + threadIdx.x] = tile[threadIdx.x * kStride + row];
}
// Writes one element of type T per thread to dynamic shared memory. The elements of adjacent threads are
// `stride` elements apart.
template <class T>
__global__ void write_shared(int stride) {
  get_dynamic_shared_memory<T>()[static_cast<int>(threadIdx.x) * stride] = T{};
}
// Reads x in the same source line before and after a barrier. Before the barrier, only even lanes read
// x[lane]. After the barrier, all lanes read x[32 + lane].
__global__ void read_around_barrier(const float* x, float* y) {
  float sum = 0;
  for (unsigned part = 0; part < 2; ++part) {
    if (part == 1 || threadIdx.x % 2 == 0) sum += x[part * 32 + threadIdx.x];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}
__global__ void add_to_one(int* x) {
  atomicAdd(x, 1);
}

Tensor zeros(DType dtype = DType::float32) {
  return Tensor::zeros({kElements}, dtype, kDevice);
}

template <class F>
AccessCounts counts_of(F&& run) {
  const DeviceScope scope(kDevice);
  const AccessLog log;
  run();
  REQUIRE(log.launches().size() == 1);
  return log.launches().begin()->second.total();
}

AccessCounts counts_of_copy(int64_t stride, int64_t offset) {
  const Tensor x = zeros(), y = zeros();
  return counts_of([&] {
    launch(copy_strided, {dim3(kBlocks), dim3(kBlockThreads)}, x.data<float>(), y.data<float>(), stride,
           offset);
  });
}

template <class T>
AccessCounts counts_of_shared(int stride) {
  const size_t bytes = sizeof(T) * 32 * static_cast<size_t>(stride);
  return counts_of([&] { launch(write_shared<T>, {dim3(1), dim3(32), bytes}, stride); });
}

}  // namespace

TEST_CASE("cuda: adjacent, strided and misaligned accesses have the sectors that arithmetic gives") {
  const AccessCounts adjacent = counts_of_copy(1, 0);
  CHECK(adjacent.requests == 2 * kWarps);  // one load and one store of each warp
  CHECK(adjacent.sectors == 4 * adjacent.requests);
  CHECK(adjacent.min_sectors == adjacent.sectors);
  CHECK(adjacent.bytes == std::array<int64_t, kAccessWidthCount>{0, 0, 2 * 4 * 32 * kWarps, 0, 0});
  CHECK(adjacent.written_bytes == 4 * 32 * kWarps);
  CHECK(adjacent.shared_requests == 0);
  // Control: with a stride of 8 elements, each lane needs a separate sector.
  const AccessCounts strided = counts_of_copy(8, 0);
  CHECK(strided.requests == adjacent.requests);
  CHECK(strided.sectors == 32 * strided.requests);
  CHECK(strided.min_sectors == 4 * strided.requests);
  CHECK(counts_of_copy(2, 0).sectors == 8 * adjacent.requests);
  CHECK(counts_of_copy(1, 1).sectors == 5 * adjacent.requests);
}

TEST_CASE("cuda: accesses are counted by width") {
  const Tensor x = zeros(), y = zeros();
  const AccessCounts packs = counts_of([&] {
    launch(copy_packs, {dim3(kBlocks), dim3(kBlockThreads)}, x.data<float>(), y.data<float>());
  });
  CHECK(packs.requests == 2 * kWarps);
  CHECK(packs.sectors == 16 * packs.requests);
  CHECK(packs.min_sectors == packs.sectors);
  CHECK(packs.bytes == std::array<int64_t, kAccessWidthCount>{0, 0, 0, 0, 2 * 16 * 32 * kWarps});
  // A lane accesses 32 bytes in two accesses of 16 bytes, so each access uses only half of a sector.
  const AccessCounts groups = counts_of([&] {
    launch(copy_groups, {dim3(kBlocks), dim3(kBlockThreads)}, x.data<float>(), y.data<float>());
  });
  CHECK(groups.requests == 4 * kWarps);
  CHECK(groups.sectors == 32 * groups.requests);
  CHECK(groups.min_sectors == 16 * groups.requests);
  CHECK(groups.bytes[4] == 2 * 32 * 32 * kWarps);
  const Tensor bytes = zeros(DType::uint8), copy = zeros(DType::uint8);
  const AccessCounts narrow = counts_of([&] {
    launch(copy_bytes, {dim3(kBlocks), dim3(kBlockThreads)}, bytes.data<uint8_t>(), copy.data<uint8_t>());
  });
  CHECK(narrow.bytes == std::array<int64_t, kAccessWidthCount>{2 * 32 * kWarps, 0, 0, 0, 0});
  CHECK(narrow.sectors == narrow.requests);
}

TEST_CASE("cuda: lanes that read the same address share a sector") {
  const Tensor x = zeros(), y = zeros();
  const AccessCounts counts = counts_of([&] {
    launch(read_one, {dim3(kBlocks), dim3(kBlockThreads)}, x.data<float>(), y.data<float>());
  });
  CHECK(counts.requests == kWarps);
  CHECK(counts.sectors == kWarps);
  CHECK(counts.written_bytes == 0);
}

TEST_CASE("cuda: bank conflicts of a transposition depend on the stride of its rows") {
  const Tensor x = zeros(), y = zeros();
  const auto counts = [&](auto* kernel) {
    return counts_of([&] { launch(kernel, {dim3(1), dim3(32)}, x.data<float>(), y.data<float>()); });
  };
  const AccessCounts padded = counts(transpose<33>), conflicting = counts(transpose<32>);
  for (const AccessCounts& both : {padded, conflicting}) {
    CHECK(both.requests == 64);
    CHECK(both.sectors == both.min_sectors);
    CHECK(both.shared_requests == 64);
    CHECK(both.min_shared_cycles == 64);
  }
  CHECK(padded.conflicts() == 0);
  CHECK(conflicting.conflicts() == 32 * 31);  // each of 32 loads takes 32 cycles
  CHECK(counts(transpose<34>).conflicts() == 32);
}

TEST_CASE("cuda: 8 and 16 bytes of a lane take two and four cycles of shared memory") {
  struct alignas(16) Wide {
    double values[2];
  };
  CHECK(counts_of_shared<float>(1).shared_cycles == 1);
  CHECK(counts_of_shared<double>(1).shared_cycles == 2);
  CHECK(counts_of_shared<Wide>(1).shared_cycles == 4);
  CHECK(counts_of_shared<Wide>(1).conflicts() == 0);
  CHECK(counts_of_shared<float>(2).conflicts() == 1);
  CHECK(counts_of_shared<double>(2).conflicts() == 2);
  CHECK(counts_of_shared<Wide>(2).conflicts() == 4);
  CHECK(counts_of_shared<uint8_t>(1).shared_cycles == 1);  // each group of four lanes writes to one word
}

TEST_CASE("cuda: accesses before and after a barrier are separate requests") {
  const Tensor x = zeros(), y = zeros();
  const AccessCounts counts = counts_of([&] {
    launch(read_around_barrier, {dim3(1), dim3(32)}, x.data<float>(), y.data<float>());
  });
  CHECK(counts.requests == 3);
  CHECK(counts.sectors == 3 * 4);
  CHECK(counts.bytes[2] == (16 + 32 + 32) * 4);
}

TEST_CASE("cuda: an atomic operation is one access, and partial warps are requests") {
  const Tensor x = zeros(DType::int32);
  const AccessCounts counts = counts_of([&] { launch(add_to_one, {dim3(3), dim3(40)}, x.data<int32_t>()); });
  CHECK(x.to_vector()[0] == 120);
  CHECK(counts.requests == 3 * 2);
  CHECK(counts.bytes[2] == 120 * 4);
}

TEST_CASE("cuda: a log counts launches by source line during its lifetime") {
  const DeviceScope scope(kDevice, "counted");
  const Tensor x = zeros(), y = zeros();
  const auto copy = [&] {
    launch(copy_strided, {dim3(1), dim3(32)}, x.data<float>(), y.data<float>(), 1, 0);
  };
  copy();
  CHECK(AccessLog::current() == nullptr);
  const AccessLog log;
  CHECK_THROWS_WITH_AS(AccessLog(), "AccessLog: this thread already has a log", ShapeError);
  CHECK(log.launches().empty());
  copy();
  copy();
  launch(copy_strided, {dim3(1), dim3(32)}, x.data<float>(), y.data<float>(), 1, 0);
  REQUIRE(log.launches().size() == 2);
  const auto& [key, launches] = *log.launches().begin();
  CHECK(std::get<0>(key).ends_with("access_log_test.cpp"));
  CHECK(std::get<2>(key) == "counted");
  CHECK(launches.launch_count == 2);
  CHECK(launches.total().requests == 4);
}
