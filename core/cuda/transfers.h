// Copies between host and device, synchronization with a device and with streams of other libraries, and
// timing of device work. This header does not include CUDA's headers.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace tapeformer::cuda {

inline constexpr int64_t kMaxStagedBytes = 4 << 20;  // maximum size of a copy by copy_to_device_async()

// Copies at most kMaxStagedBytes bytes from pageable host memory to current_device. The bytes are copied to a
// pinned buffer first, so the caller may overwrite the host memory after the call. The copy to the device is
// asynchronous, in stream order.
void copy_to_device_async(void* to, const void* from, int64_t bytes);

// An asynchronous copy of at most kMaxBytes bytes from current_device to the host. The constructor adds the
// copy to the stream of the device.
class DeviceToHostCopy {
 public:
  static constexpr int64_t kMaxBytes = 16;

  DeviceToHostCopy(const void* from, int64_t bytes);
  ~DeviceToHostCopy();
  DeviceToHostCopy(const DeviceToHostCopy&) = delete;
  DeviceToHostCopy& operator=(const DeviceToHostCopy&) = delete;
  // Waits for the copy, and returns the address of the copied bytes, which is valid during the lifetime of
  // the object. Does not wait for work that was launched after the copy.
  const void* wait() const;

 private:
  struct Slot* slot_;
};

// A timer of work on current_device. The measured time begins when the device has finished the work that was
// launched before the constructor.
class EventTimer {
 public:
  EventTimer();
  ~EventTimer();
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;
  // Waits until the device has finished the work that was launched before this call. Returns the time in
  // seconds from the start of the measurement to the end of this work.
  double measure_elapsed_seconds() const;

 private:
  struct EventPair* events_;
};

// Waits until the device has finished all launched work.
void synchronize(Device device);
// Returns the number of times that this process has waited until a device finished all launched work. Tests
// check that a training step does not wait.
int64_t host_wait_count();

// Orders work on `device` before and after the work in `stream`, a cudaStream_t of another library. Work that
// is launched during the lifetime of the object runs after all work that `stream` had at the construction.
// Work that is added to `stream` after the destruction runs after it. The host does not wait.
//
// Memory of the other library that is freed in the order of `stream` may therefore be used until the
// destruction. The thread may have changed CUDA's current device before the construction, and has the same
// current device after the destruction.
//
// The constructor throws DeviceError if the device cannot be used, and CudaGraphError if `stream` records a
// CUDA graph, because replays would use memory that the caching allocator has given to other work.
class ForeignStreamScope {
 public:
  ForeignStreamScope(Device device, void* stream);
  ~ForeignStreamScope();
  ForeignStreamScope(const ForeignStreamScope&) = delete;
  ForeignStreamScope& operator=(const ForeignStreamScope&) = delete;

 private:
  struct KeepCurrentDevice {
    KeepCurrentDevice();
    ~KeepCurrentDevice();
    int previous = 0;
  };
  KeepCurrentDevice keep_current_device_;
  Device device_;
  void* stream_;
};

// Sets `bytes` bytes of memory on current_device to 0, in stream order.
void fill_zero(void* data, int64_t bytes);
// Copies `bytes` bytes from one device to another, or between a device and the host. If the target is host
// memory, or if the two devices are different CUDA devices, waits until the copy is complete.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

}  // namespace tapeformer::cuda
