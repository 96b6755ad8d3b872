// The context of a CUDA device: a stream, handles of cuBLAS and cuBLASLt, and memory that kernels share. The
// context of a device is created on first use and never destroyed.
#pragma once

#include <mutex>

#include "core/cuda/launch_count.h"
#include "core/cuda/precision.h"
#include "core/cuda/status.h"

namespace tapeformer::cuda {

// Size of the workspace of cuBLAS, as NVIDIA recommends for Hopper.
inline constexpr int64_t kBlasWorkspaceBytes = 32 << 20;
inline constexpr int64_t kArrivalCounterCount = 1 << 12;

struct Context {
  int device = 0;
  cudaStream_t stream{};
  cublasHandle_t blas{};
  cublasLtHandle_t blas_lt{};
  // Workspace of kBlasWorkspaceBytes bytes for `blas` and `blas_lt`. Null in the emulation.
  void* blas_workspace = nullptr;
  // kArrivalCounterCount counters in device memory, with which a kernel counts its finished blocks. All
  // counters are 0 when a kernel starts and when it ends.
  unsigned* arrival_counters = nullptr;
  Precision precision = Precision::float32;
  // While a graph is being recorded, the address of a counter in device memory: the number of steps since the
  // recording (core/cuda/graph.h). Otherwise null.
  const int64_t* step_offset = nullptr;
};

// Returns the context of current_device, and calls cudaSetDevice for this device if needed. Throws
// DeviceError if the device cannot be used, or if current_device is the CPU.
const Context& get_context();

// Makes the next get_context() of this thread call cudaSetDevice. Call this function if another library may
// have changed CUDA's current device.
void forget_current_device();

// Throws CudaGraphError if a graph is being recorded on current_device. `action` says what the current op
// does, for example "waits for the device". The message of the error contains `action`.
void check_not_capturing(const char* action);

// Sets Context::step_offset of current_device during the lifetime of the object. `step_offset` is the address
// of the step counter of a graph in device memory. Kernels that are launched during the lifetime of the
// object add the value of the counter to their step numbers (GraphStep in core/cuda/kernel.h).
class GraphRecordingScope {
 public:
  explicit GraphRecordingScope(const int64_t* step_offset);
  ~GraphRecordingScope();
  GraphRecordingScope(const GraphRecordingScope&) = delete;
  GraphRecordingScope& operator=(const GraphRecordingScope&) = delete;
};

// A table with one object of type T per CUDA device. An object is created on first use and never destroyed.
// get() is thread-safe.
template <class T>
class PerDevice {
 public:
  // Returns the object of a device. The first call for the device creates the object with make(), which
  // returns a pointer and runs inside a DeviceScope of the device. Throws DeviceError for an index outside
  // [0, kMaxDevices).
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
