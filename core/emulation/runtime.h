// CPU emulation of the CUDA language extensions and runtime functions that the kernels use. This header
// replaces cuda_runtime.h and defines the names of CUDA, so that the same source files compile for CUDA and
// for the emulation.
//
// A launch distributes its blocks among the CPU threads of parallel_for(). One CPU thread runs all threads of
// a block, one after another. The order is increasing in half of the blocks and decreasing in the other half.
// If a thread waits in __syncthreads(), a shuffle or a vote, the fiber that runs this thread is suspended,
// and another fiber with its own stack runs the next threads. A launch throws std::logic_error if a thread
// waits at a barrier that other threads of the block never reach, or if a shuffle reads a lane that does not
// participate in the shuffle.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/source_location.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
// A __shared__ variable is a thread-local variable, because one CPU thread runs all threads of a block.
#define __shared__ static thread_local

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace tapeformer::cuda::emulation {

// The work that this CPU thread has submitted during a stream capture. Null if the thread captures no stream.
inline constinit thread_local std::vector<std::function<void()>>* captured_work = nullptr;
// Runs `work` immediately. During a stream capture, adds `work` to captured_work instead.
template <class F>
void submit(F&& work) {
  if (captured_work)
    captured_work->emplace_back(std::forward<F>(work));
  else
    work();
}

// Runs a kernel: calls `kernel` once for each thread of the grid. `kernel` has no parameters, because it
// already contains the arguments of the launch.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);

// Implements __syncthreads().
void wait_at_block_barrier();
void* dynamic_shared_memory();

inline constexpr size_t kMaxLaneValueBytes = 32;
// The values that the lanes of a warp have passed to one warp operation, such as a shuffle or a vote.
struct LaneValues {
  alignas(16) unsigned char bytes[32][kMaxLaneValueBytes];
  uint32_t present_lanes = 0;  // bit mask of the participating lanes
};
// Passes a value of `bytes` bytes to the other lanes of `mask`. Waits until each lane of the mask has passed
// a value or left the kernel. Returns the values of all lanes. The returned reference is valid until the next
// call by the same lane.
const LaneValues& exchange_lane_values(uint32_t mask, const void* value, size_t bytes);
// Always throws std::logic_error. The message says that the current thread reads the value of lane `lane`,
// and that lane `lane` does not participate in the shuffle.
[[noreturn]] void throw_absent_lane(int lane);
int current_lane();

// Passes `value` to the other lanes of `mask`, and returns the value of lane `source`.
template <class T>
T read_lane_value(uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= kMaxLaneValueBytes);
  const LaneValues& lanes = exchange_lane_values(mask, &value, sizeof(T));
  if (!((lanes.present_lanes >> source) & 1)) throw_absent_lane(source);
  T result;
  std::memcpy(&result, lanes.bytes[source], sizeof(T));
  return result;
}

}  // namespace tapeformer::cuda::emulation

inline void __syncthreads() {
  tapeformer::cuda::emulation::wait_at_block_barrier();
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFF) {
  tapeformer::cuda::emulation::exchange_lane_values(mask, nullptr, 0);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = tapeformer::cuda::emulation::current_lane();
  return tapeformer::cuda::emulation::read_lane_value(mask, value,
                                                      (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = tapeformer::cuda::emulation::current_lane();
  const int source = (lane ^ bits) / width == lane / width ? lane ^ bits : lane;
  return tapeformer::cuda::emulation::read_lane_value(mask, value, source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = tapeformer::cuda::emulation::current_lane(), source = lane + static_cast<int>(delta);
  return tapeformer::cuda::emulation::read_lane_value(mask, value,
                                                      source / width == lane / width ? source : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = tapeformer::cuda::emulation::current_lane(), source = lane - static_cast<int>(delta);
  return tapeformer::cuda::emulation::read_lane_value(
      mask, value, source >= 0 && source / width == lane / width ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const auto& lanes = tapeformer::cuda::emulation::exchange_lane_values(mask, &predicate, sizeof(predicate));
  unsigned result = 0;
  for (int lane = 0; lane < 32; ++lane) {
    int value;
    std::memcpy(&value, lanes.bytes[lane], sizeof(value));
    if (((lanes.present_lanes >> lane) & 1) && value) result |= 1u << lane;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, !predicate) == 0;
}
inline int __popc(unsigned bits) {
  return std::popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline int __clz(int bits) {
  return std::countl_zero(static_cast<unsigned>(bits));
}

template <class T>
T atomicAdd(T* target, T value) {
  return std::atomic_ref<T>(*target).fetch_add(value);
}
template <class T>
T atomicExch(T* target, T value) {
  return std::atomic_ref<T>(*target).exchange(value);
}
template <class T>
T atomicCAS(T* target, T expected, T value) {
  std::atomic_ref<T>(*target).compare_exchange_strong(expected, value);
  return expected;
}
template <class T>
T atomicMax(T* target, T value) {
  std::atomic_ref<T> atomic_target(*target);
  T old = atomic_target.load();
  while (old < value && !atomic_target.compare_exchange_weak(old, value)) {
  }
  return old;
}
template <class T>
T atomicMin(T* target, T value) {
  std::atomic_ref<T> atomic_target(*target);
  T old = atomic_target.load();
  while (value < old && !atomic_target.compare_exchange_weak(old, value)) {
  }
  return old;
}
inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
template <class T>
T __ldg(const T* source) {
  return *source;
}

// The functions of the CUDA runtime below are synchronous, so streams have no effect.
enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidDevice,
  cudaErrorNoDevice,
  cudaErrorInsufficientDriver,
  cudaErrorStreamCaptureUnsupported
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDefault
};
using cudaStream_t = struct EmulatedStream*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaDeviceProp {
  char name[256];
  int major, minor;
  size_t totalGlobalMem;
};

// The kernels and copies that were submitted during a stream capture, with copies of their arguments.
struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = tapeformer::cuda::emulation::captured_work ? cudaStreamCaptureStatusActive
                                                       : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** block, size_t bytes);
cudaError_t cudaFree(void* block);
cudaError_t cudaMallocHost(void** block, size_t bytes);
cudaError_t cudaFreeHost(void* block);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index);
const char* cudaGetErrorString(cudaError_t status);
const char* cudaGetErrorName(cudaError_t status);
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int index) {
  return index == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
inline cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return tapeformer::cuda::emulation::captured_work ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t) {
  tapeformer::cuda::emulation::submit([=] { std::memset(target, value, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  tapeformer::cuda::emulation::submit([=] { std::memcpy(target, source, bytes); });
  return cudaSuccess;
}
