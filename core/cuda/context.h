// What the backend keeps per device: a stream, on which all its work goes, and handles of cuBLAS and
// cuBLASLt with their workspace. Made on first use, never destroyed.
#pragma once

#include <source_location>

#include "core/allocator.h"
#include "core/cuda/backend.h"
#include "core/cuda/runtime.h"

namespace tapeformer::cuda {

// Throws for a status that is not success: OutOfMemory or DeviceError, with the place of the call.
void check_status(cudaError_t status, std::source_location where = std::source_location::current());
void check_status(cublasStatus_t status, std::source_location where = std::source_location::current());

inline constexpr int64_t kBlasWorkspace = 32 << 20;  // what cuBLAS asks for on Hopper

struct Context {
  int device = 0;
  cudaStream_t stream{};
  cublasHandle_t blas{};
  cublasLtHandle_t blas_lt{};
  void* blas_workspace = nullptr;  // of both, kBlasWorkspace bytes; null in the emulation
  Precision precision = Precision::float32;
  const int64_t* later = nullptr;  // of the graph that is being recorded (core/cuda/graph.h)
};

// The context of current_device, which becomes the device of the CUDA runtime on this thread. Throws
// DeviceError when it cannot be used, or when the current device is the CPU.
const Context& context();

// Throws DeviceError while a graph is recorded, which could not repeat what the caller is about to do. `what`
// follows "it", as in "waits for the device".
void refuse_in_graph(const char* what);

// For the scope, launches become part of a graph instead of being done; `later` is the graph's.
class Recording {
 public:
  explicit Recording(const int64_t* later);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

// Pinned host memory, from which and to which copies run beside other work of both machines.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(int64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_;
};

// Uninitialised working memory of a kernel, from the current device's allocator. It may be reused as soon as
// the scope ends: what is launched later runs later.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : device_(current_device),
        bytes_(count * static_cast<int64_t>(sizeof(T))),
        data_(static_cast<T*>(allocator(device_).allocate(bytes_))) {}
  ~Scratch() { allocator(device_).release(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }  // nullptr for a count of 0

 private:
  Device device_;
  int64_t bytes_;
  T* data_;
};

}  // namespace tapeformer::cuda
