// Copies between host and device that do not make the host wait, and the time that work takes, without CUDA's
// headers.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace tapeformer::cuda {

inline constexpr int64_t kMaxStaged = 4 << 20;  // bytes

// Copies from pageable host memory, which may change when the call returns: the bytes go through pinned
// memory, of which a device has a few pieces that are used in turn. On current_device; at most kMaxStaged
// bytes.
void stage(void* to, const void* from, int64_t bytes);

// A few bytes on their way from current_device to the host.
class HostCopy {
 public:
  static constexpr int64_t kMaxBytes = 16;  // bytes

  HostCopy(const void* from, int64_t bytes);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  // The bytes, for which it waits, but not for work that was launched after the copy.
  const void* wait() const;

 private:
  struct Slot* slot_;
};

// Time on current_device, from when it has done what was launched before the timer was made.
class EventTimer {
 public:
  EventTimer();
  ~EventTimer();
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;
  // Until it has done what was launched before the call, for which it waits.
  double seconds() const;

 private:
  struct Events* events_;
};

// Waits until the device has finished all work.
void synchronize(Device device);
// Returns how often the host has waited for all work of a device.
int64_t host_waits();

// Sets bytes of the current device to 0, in stream order.
void fill_zero(void* data, int64_t bytes);
// Copies between devices and host. Waits if the target is host memory.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

}  // namespace tapeformer::cuda
