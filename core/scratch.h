// Uninitialised temporary memory for kernels. The destructor releases the memory.
#pragma once

#include <cstdint>

#include "core/allocator.h"

namespace tapeformer {

// Memory for `count` elements from the allocator of current_device. On a CUDA device, the object may be
// destroyed before the kernels that use the memory have run. Later work in the stream runs after these
// kernels, so it cannot overwrite the memory too early.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : device_(current_device),
        bytes_(count * static_cast<int64_t>(sizeof(T))),
        data_(static_cast<T*>(get_device_allocator(device_).allocate(bytes_))) {}
  ~Scratch() { get_device_allocator(device_).release(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }  // nullptr if the count is 0

 private:
  Device device_;
  int64_t bytes_;
  T* data_;
};

}  // namespace tapeformer
