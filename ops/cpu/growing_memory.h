// A buffer that belongs to one thread and grows to the largest requested size. The buffer does not use the
// CachingAllocator, so that the allocator's peak memory does not depend on the scheduling of threads.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace tapeformer::cpu {

class GrowingMemory {
 public:
  // Returns uninitialised memory for `count` elements, aligned to a cache line. The next call may release
  // this memory. Throws std::bad_alloc if the allocation fails.
  template <class T>
  T* get(int64_t count) {
    constexpr int64_t kAlignment = 64;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (bytes > size_) {
      size_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      memory_.reset(std::aligned_alloc(kAlignment, static_cast<size_t>(size_)));
      if (!memory_) throw std::bad_alloc();
    }
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  int64_t size_ = 0;
};

}  // namespace tapeformer::cpu
