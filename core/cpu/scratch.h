// Uninitialised working memory of a kernel, from the caching allocator, for the length of a scope.
#pragma once

#include <cstdint>

#include "core/allocator.h"

namespace tapeformer::cpu {

template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : bytes_(count * static_cast<int64_t>(sizeof(T))),
        data_(static_cast<T*>(allocator().allocate(bytes_))) {}
  ~Scratch() { allocator().release(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }  // nullptr for a count of 0

 private:
  int64_t bytes_;
  T* data_;
};

}  // namespace tapeformer::cpu
