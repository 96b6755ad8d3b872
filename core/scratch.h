// Uninitialised temporary memory for kernels. The destructor releases the memory.
#pragma once

#include <cstdint>

#include "core/allocator.h"

namespace tapeformer {

// Memory for `count` elements on current_device. A function can destroy the object while CUDA kernels that
// use the memory still run, because the memory is reused only by later work in the same stream.
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
