// Copies between host and device, waiting, and timing. This header does not include CUDA's headers.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace tapeformer::cuda {

inline constexpr int64_t kMaxStaged = 4 << 20;  // in bytes

// Copies at most kMaxStaged bytes from pageable host memory to current_device, through one of a few pinned
// buffers. The caller may overwrite the host memory after the call.
void stage(void* to, const void* from, int64_t bytes);

// An asynchronous copy of a few bytes from current_device to the host.
class HostCopy {
 public:
  static constexpr int64_t kMaxBytes = 16;

  HostCopy(const void* from, int64_t bytes);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  // Returns the address of the copied bytes. Waits for the copy, but not for work launched after the copy.
  const void* wait() const;

 private:
  struct Slot* slot_;
};

// A timer on current_device, which starts when the device has finished the work launched before.
class EventTimer {
 public:
  EventTimer();
  ~EventTimer();
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;
  // Returns the seconds until the device finishes the work launched before this call. Waits for the work.
  double seconds() const;

 private:
  struct Events* events_;
};

// Waits until the device has finished all work.
void synchronize(Device device);
// Returns the number of times that the host has waited for all work of a device.
int64_t host_waits();

// Sets `bytes` bytes of memory on current_device to 0, in stream order.
void fill_zero(void* data, int64_t bytes);
// Copies `bytes` bytes between devices and the host. Waits for the copy if the target is host memory or
// another device than the source.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

}  // namespace tapeformer::cuda
