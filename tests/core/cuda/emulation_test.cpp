// Tests of the emulation of CUDA. This file is compiled only if CUDA is emulated.
#include <doctest/doctest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/cuda/async_copy.h"
#include "core/cuda/graph.h"
#include "core/cuda/kernel.h"
#include "core/cuda/matrix_product.h"
#include "core/cuda/transfers.h"
#include "core/emulation/stream_waits.h"
#include "core/tensor.h"

using namespace tapeformer;
using namespace tapeformer::cuda;

namespace {

const Device kDevice{DeviceType::cuda, 0};

__global__ void do_nothing() {}
__global__ void first_used_in_graph() {}

// Rotates the values of each block in three rounds. In each round, a thread receives the value of the next
// thread through shared memory. Barriers separate the writes to shared memory from the reads.
__global__ void rotate(const int* x, int* y) {
  int* const shared = get_dynamic_shared_memory<int>();
  const unsigned n = blockDim.x, base = blockIdx.x * n;
  for (int round = 0; round < 3; ++round) {
    shared[threadIdx.x] = round == 0 ? x[base + threadIdx.x] : y[base + threadIdx.x];
    __syncthreads();
    y[base + threadIdx.x] = shared[(threadIdx.x + 1) % n];
    __syncthreads();
  }
}

__global__ void shuffle(int* out) {
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  int* const values = out + threadIdx.x * 6;
  values[0] = __shfl_sync(kAllLanes, lane, 3);
  values[1] = __shfl_xor_sync(kAllLanes, lane, 5);
  values[2] = __shfl_down_sync(kAllLanes, lane, 1);
  values[3] = __shfl_up_sync(kAllLanes, lane, 1, 8);
  values[4] = static_cast<int>(__ballot_sync(kAllLanes, lane % 2));
  values[5] = __any_sync(kAllLanes, lane == 31) + 2 * __all_sync(kAllLanes, lane < 32);
}

// Exchanges numbers between even lanes: lane i receives the number i ^ 2 from lane i ^ 2. Odd lanes return
// before the shuffle, so the mask of the shuffle contains only even lanes.
__global__ void half_warp(int* out) {
  if (threadIdx.x % 2) return;
  const auto lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_xor_sync(0x55555555u, lane, 2);
}

__global__ void count(int* total, float* sum, int* largest) {
  atomicAdd(total, 1);
  atomicAdd(sum, 0.5f);
  atomicMax(largest, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

__global__ void reduce(const double* x, double* sums, double* maxima) {
  const double value = x[first_element()];
  sums[first_element()] = block_sum(value);
  maxima[first_element()] = block_max(value);
}

// Computes c = 1 + a b with one warp. a (16, 16) and c (16, 8) are row-major, and b (16, 8) is column-major.
__global__ void multiply(const float* a, const float* b, float* c) {
  const auto lane = static_cast<int>(threadIdx.x), row = lane / 4, column = lane % 4 * 2;
  const auto left = [&](int i, int k) { return pack_bfloat16_pair(a[i * 16 + k], a[i * 16 + k + 1]); };
  const auto right = [&](int k, int j) { return pack_bfloat16_pair(b[j * 16 + k], b[j * 16 + k + 1]); };
  float sums[4] = {1, 1, 1, 1};
  add_matrix_product(
      sums[0], sums[1], sums[2], sums[3],
      {{left(row, column), left(row + 8, column), left(row, column + 8), left(row + 8, column + 8)}},
      {{right(column, row), right(column + 8, row)}});
  for (int i = 0; i < 4; ++i) c[(row + i / 2 * 8) * 8 + column + i % 2] = sums[i];
}

// Calls load_matrices() for four matrices in shared memory, and writes the four pairs that each lane
// receives. The rows of the matrices are stored one after another.
template <bool kTransposed>
__global__ void load_four(const uint16_t* elements, uint32_t* out) {
  auto* const shared = get_dynamic_shared_memory<uint32_t>();
  const unsigned lane = threadIdx.x;
  std::memcpy(shared + lane * 4, elements + lane * 8, 16);
  __syncthreads();
  uint32_t pairs[4];
  load_matrices<kTransposed>(shared + lane * 4, pairs);
  std::memcpy(out + lane * 4, pairs, sizeof(pairs));
}
__global__ void load_from_odd_address(const uint32_t* row) {
  uint32_t pairs[4];
  load_matrices<false>(row + 1, pairs);
}

// Copies three packs per thread to shared memory, in two groups. Writes the shared memory to `out` before the
// first wait and after each wait.
__global__ void copy_in_groups(const Pack<int>* x, Pack<int>* out) {
  auto* const shared = get_dynamic_shared_memory<Pack<int>>() + 3 * threadIdx.x;
  AsyncCopies copies;
  const auto write = [&](unsigned step) {
    for (unsigned i = 0; i < 3; ++i) out[(threadIdx.x * 3 + step) * 3 + i] = shared[i];
  };
  copies.copy(shared, x + 2 * threadIdx.x, true);
  copies.commit();
  copies.copy(shared + 1, x + 2 * threadIdx.x + 1, true);
  copies.copy(shared + 2, x, false);
  copies.commit();
  write(0);
  copies.wait<1>();
  write(1);
  copies.wait<0>();
  write(2);
}
__global__ void copy_to_odd_address(const int* x) {
  AsyncCopies().copy(get_dynamic_shared_memory<int>() + 1, x, true);
}

// Reads the value of the neighbouring thread without a barrier, which is a data race.
__global__ void read_neighbour(int* out) {
  int* const shared = get_dynamic_shared_memory<int>();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = threadIdx.x > 0 ? shared[threadIdx.x - 1] : -1;
}

__global__ void leave_before_barrier() {
  if (threadIdx.x == 7) return;
  __syncthreads();
}
__global__ void read_absent_lane(int* out) {
  if (threadIdx.x == 3) return;
  out[threadIdx.x] = __shfl_sync(kAllLanes, 1, 3);
}
__global__ void read_unwritten(double* out) {
  out[threadIdx.x] = get_dynamic_shared_memory<double>()[threadIdx.x];
}

}  // namespace

TEST_CASE("emulation: a barrier waits for all threads, in one, two and three dimensions of blocks") {
  const DeviceScope scope(kDevice);
  for (const unsigned threads : {1u, 31u, 33u, 256u}) {
    constexpr unsigned kBlocks = 13;
    std::vector<int> x(threads * kBlocks), y(x.size());
    std::iota(x.begin(), x.end(), 0);
    launch(rotate, {dim3(kBlocks), dim3(threads), threads * sizeof(int)}, x.data(), y.data());
    for (size_t i = 0; i < x.size(); ++i)
      REQUIRE(y[i] == static_cast<int>(i / threads * threads + (i % threads + 3) % threads));
  }
}

TEST_CASE("emulation: shuffles and votes exchange values between the lanes of their mask") {
  const DeviceScope scope(kDevice);
  std::vector<int> out(64 * 6);
  launch(shuffle, {dim3(1), dim3(64)}, out.data());
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32;
    const int* const values = out.data() + thread * 6;
    CHECK(values[0] == 3);
    CHECK(values[1] == (lane ^ 5));
    CHECK(values[2] == (lane == 31 ? 31 : lane + 1));
    CHECK(values[3] == (lane % 8 == 0 ? lane : lane - 1));
    CHECK(static_cast<unsigned>(values[4]) == 0xAAAAAAAAu);
    CHECK(values[5] == 3);
  }
  std::vector<int> half(32, -1);
  launch(half_warp, {dim3(1), dim3(32)}, half.data());
  for (int lane = 0; lane < 32; ++lane) CHECK(half[static_cast<size_t>(lane)] == (lane % 2 ? -1 : lane ^ 2));
}

TEST_CASE("emulation: atomic operations include every thread of every block") {
  const DeviceScope scope(kDevice);
  int total = 0, largest = 0;
  float sum = 0;
  launch(count, {dim3(20, 3, 2), dim3(10, 2, 2)}, &total, &sum, &largest);
  CHECK(total == 4800);
  CHECK(sum == 2400);
  CHECK(largest == 19 * 10 + 9);
}

TEST_CASE("block reductions give every thread the sum and the maximum") {
  const DeviceScope scope(kDevice);
  constexpr unsigned kThreadsPerBlock = 96;
  std::vector<double> x(2 * kThreadsPerBlock), sums(x.size()), maxima(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 31) - 40;
  launch(reduce, {dim3(2), dim3(kThreadsPerBlock)}, x.data(), sums.data(), maxima.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto first = x.begin() + static_cast<int64_t>(i / kThreadsPerBlock * kThreadsPerBlock);
    CHECK(sums[i] == std::accumulate(first, first + kThreadsPerBlock, 0.0));
    CHECK(maxima[i] == *std::max_element(first, first + kThreadsPerBlock));
  }
}

TEST_CASE("emulation: a launch beyond the limits of devices is an error") {
  const DeviceScope scope(kDevice);
  const char* const message = "threads exceed the limits of a device";
  CHECK_THROWS_WITH_AS(launch(do_nothing, {dim3(1, 65536), dim3(1)}), doctest::Contains(message), ShapeError);
  CHECK_THROWS_WITH_AS(launch(do_nothing, {dim3(1, 1, 65536), dim3(1)}), doctest::Contains(message),
                       ShapeError);
  CHECK_THROWS_WITH_AS(launch(do_nothing, {dim3(1), dim3(33, 32)}), doctest::Contains(message), ShapeError);
  CHECK_THROWS_WITH_AS(launch(do_nothing, {dim3(1u << 31), dim3(1)}), doctest::Contains(message), ShapeError);
  launch(do_nothing, {dim3(1, 65535), dim3(32, 32)});
}

TEST_CASE(
    "emulation: a kernel that runs for the first time in a graph is an error, because a device would load "
    "the kernel during the capture") {
  const auto record = [] {
    Graph graph(kDevice, 1, [] {
      const DeviceScope scope(kDevice, "late");
      launch(first_used_in_graph, {dim3(1), dim3(1)});
    });
    graph.launch(0);
  };
  CHECK_THROWS_WITH_AS(record(), doctest::Contains("has not run before the graph"), DeviceError);
  {
    const DeviceScope scope(kDevice);
    launch(first_used_in_graph, {dim3(1), dim3(1)});
  }
  record();
}

TEST_CASE("emulation: undefined behaviour of a device is an error or gives NaN") {
  const DeviceScope scope(kDevice);
  CHECK_THROWS_WITH_AS(launch(leave_before_barrier, {dim3(2), dim3(40)}),
                       "kernel: of 40 threads of block 0, 1 have ended and the others wait for them",
                       std::logic_error);
  std::vector<int> out(32);
  CHECK_THROWS_WITH_AS(launch(read_absent_lane, {dim3(1), dim3(32)}, out.data()),
                       doctest::Contains("reads lane 3, which does not participate in the shuffle"),
                       std::logic_error);
  std::vector<double> unwritten(8);
  launch(read_unwritten, {dim3(1), dim3(8), 64}, unwritten.data());
  for (const double value : unwritten) CHECK(std::isnan(value));
}

TEST_CASE("emulation: a warp multiplies bfloat16 matrices as tensor cores do") {
  const DeviceScope scope(kDevice);
  std::vector<float> a(16 * 16), b(16 * 8), c(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 37) - 18;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 23) - 7;
  b[3] = 1.00390625f;  // halfway between 1 and the next bfloat16 number, so it is rounded to 1
  launch(multiply, {dim3(1), dim3(32)}, a.data(), b.data(), c.data());
  b[3] = 1;
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      float sum = 1;
      for (size_t k = 0; k < 16; ++k) sum += a[i * 16 + k] * b[j * 16 + k];
      CHECK(c[i * 8 + j] == sum);
    }
}

TEST_CASE(
    "emulation: a missing barrier changes results, because every other launch runs threads in reverse "
    "order") {
  const DeviceScope scope(kDevice);
  std::vector<int> first(64), second(64);
  launch(read_neighbour, {dim3(1), dim3(64), 64 * sizeof(int)}, first.data());
  launch(read_neighbour, {dim3(1), dim3(64), 64 * sizeof(int)}, second.data());
  CHECK(first != second);
}

TEST_CASE("emulation: a warp loads matrices of 16-bit elements, also transposed") {
  const DeviceScope scope(kDevice);
  std::vector<uint16_t> elements(4 * 8 * 8);
  std::iota(elements.begin(), elements.end(), uint16_t{0});
  std::vector<uint32_t> pairs(32 * 4), transposed(pairs.size());
  launch(load_four<false>, {dim3(1), dim3(32), 512}, elements.data(), pairs.data());
  launch(load_four<true>, {dim3(1), dim3(32), 512}, elements.data(), transposed.data());
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t row = lane / 4, column = lane % 4 * 2;
      const auto element = [&](uint32_t i, uint32_t j) { return m * 64 + i * 8 + j; };
      CHECK(pairs[lane * 4 + m] == (element(row, column) | element(row, column + 1) << 16));
      CHECK(transposed[lane * 4 + m] == (element(column, row) | element(column + 1, row) << 16));
    }
  alignas(16) const uint32_t row[8] = {};
  CHECK_THROWS_WITH_AS(launch(load_from_odd_address, {dim3(1), dim3(32)}, &row[0]),
                       doctest::Contains("no multiple of 16"), std::logic_error);
}

TEST_CASE(
    "emulation: an asynchronous copy is complete when its thread has waited for its group, not before") {
  const DeviceScope scope(kDevice);
  constexpr unsigned kCopying = 5;
  std::vector<Pack<int>> x(2 * kCopying), out(9 * kCopying);
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t v = 0; v < 4; ++v) x[i].values[v] = static_cast<int>(4 * i + v + 1);
  launch(copy_in_groups, {dim3(1), dim3(kCopying), 3 * kCopying * 16}, x.data(), out.data());
  constexpr int kUnwritten = -1;  // the emulation initializes shared memory with 0xFF bytes
  for (size_t thread = 0; thread < kCopying; ++thread)
    for (size_t step = 0; step < 3; ++step)
      for (size_t i = 0; i < 3; ++i)
        for (size_t v = 0; v < 4; ++v) {
          const int copied = i == 2 ? 0 : x[2 * thread + i].values[v];
          CHECK(out[(thread * 3 + step) * 3 + i].values[v] ==
                (step > (i == 0 ? 0 : 1) ? copied : kUnwritten));
        }
  CHECK_THROWS_WITH_AS(launch(copy_to_odd_address, {dim3(1), dim3(1), 64}, &x[0].values[0]),
                       doctest::Contains("multiples of 16"), std::logic_error);
}

TEST_CASE("emulation: a foreign stream waits for work that waits for the foreign stream") {
  auto* const stream = reinterpret_cast<void*>(uintptr_t{0x70});
  auto& waits = emulation::stream_waits;
  waits.clear();
  {
    const ForeignStreamScope order(kDevice, stream);
    REQUIRE(waits.size() == 1);
    Tensor::full({3}, 2, DType::float32, kDevice).fill(1);
  }
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].earlier == stream);
  CHECK(waits[1].later == stream);
  CHECK(waits[0].later == waits[1].earlier);
  CHECK(waits[0].later != stream);

  cudaGraph_t graph{};
  REQUIRE(cudaStreamBeginCapture({}, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK_THROWS_WITH_AS(ForeignStreamScope(kDevice, stream), doctest::Contains("records a CUDA graph"),
                       CudaGraphError);
  REQUIRE(cudaStreamEndCapture({}, &graph) == cudaSuccess);
  CHECK(graph->work.empty());
  cudaGraphDestroy(graph);
  CHECK_THROWS_AS(ForeignStreamScope({DeviceType::cuda, 1}, stream), DeviceError);
  CHECK(waits.size() == 2);
}
