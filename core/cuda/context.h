// State of the CUDA backend for each device: a stream, and handles of cuBLAS and cuBLASLt with their
// workspace. A context is created on first use and never destroyed.
#pragma once

#include <mutex>

#include "core/cuda/precision.h"
#include "core/cuda/status.h"

namespace tapeformer::cuda {

inline constexpr int64_t kBlasWorkspace = 32 << 20;  // bytes; the size that cuBLAS recommends for Hopper
inline constexpr int64_t kArrivals = 1 << 12;

struct Context {
  int device = 0;
  cudaStream_t stream{};
  cublasHandle_t blas{};
  cublasLtHandle_t blas_lt{};
  void* blas_workspace = nullptr;  // kBlasWorkspace bytes for both handles; null in the emulation
  // kArrivals counters for kernels that count finished blocks. They are 0 between launches.
  unsigned* arrivals = nullptr;
  Precision precision = Precision::float32;
  // Step counter of the graph that is being recorded (core/cuda/graph.h), otherwise null.
  const int64_t* step_offset = nullptr;
};

// Returns the context of current_device, and makes the device current in the CUDA runtime on this thread.
// Throws DeviceError if the device cannot be used or current_device is the CPU.
const Context& context();

// Throws GraphError if a graph is being recorded. `action` is part of the message "it ACTION, which a CUDA
// graph cannot repeat", for example "waits for the device".
void refuse_in_graph(const char* action);

// Marks launches of this thread as part of a graph for a scope. `step_offset` points to device memory with
// the number of steps since the recording.
class Recording {
 public:
  explicit Recording(const int64_t* step_offset);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

// One object per device, created on first use and never destroyed. get() is thread-safe.
template <class T>
class PerDevice {
 public:
  // Returns the object of a device, or the result of make() on the first call. make() runs inside a
  // DeviceScope. Throws DeviceError for an index outside [0, kMaxDevices).
  template <class Make>
  T& get(int index, Make&& make) {
    if (index < 0 || index >= kMaxDevices)
      throw DeviceError(concat_text("device cuda:", index, " is not available"));
    const std::scoped_lock lock(mutex_);
    if (!objects_[index]) {
      const DeviceScope scope({DeviceType::cuda, index});
      objects_[index] = make();
    }
    return *objects_[index];
  }

 private:
  static constexpr int kMaxDevices = 64;
  std::mutex mutex_;
  T* objects_[kMaxDevices] = {};
};

}  // namespace tapeformer::cuda
