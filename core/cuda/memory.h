// Device memory and pinned host memory.
#pragma once

#include <cstdint>

#include "core/caching_allocator.h"

namespace tapeformer::cuda {

// Returns the caching allocator of device `index`. The allocator is created on first use and never destroyed.
CachingAllocator& get_allocator(int index);

// A buffer of pinned (page-locked) host memory. Copies between a device and pinned memory run asynchronously.
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

}  // namespace tapeformer::cuda
