// Temporary memory for CPU kernels. An Arena divides a block of memory into arrays, and PerThreadMemory
// allocates one block for each thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {

// An allocator of arrays in a block of memory. If the block is null, allocate() returns null pointers, and
// used_bytes() returns the size that the block must have.
class Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}
  // Returns an array of `count` elements that is aligned to a cache line.
  template <class U>
  U* allocate(int64_t count) {
    constexpr int64_t kAlignment = 64;
    U* const taken = memory_ ? reinterpret_cast<U*>(memory_ + used_bytes_) : nullptr;
    used_bytes_ += (count * static_cast<int64_t>(sizeof(U)) + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  char* memory_;
  int64_t used_bytes_ = 0;
};

// Blocks of equal size, one for each thread of a parallel loop.
class PerThreadMemory {
 public:
  explicit PerThreadMemory(int64_t bytes) : bytes_(bytes), memory_(bytes * get_thread_count()) {}
  // Returns an arena in the block of the calling thread.
  Arena arena() const { return Arena(memory_.data() + bytes_ * get_thread_index()); }

 private:
  int64_t bytes_;
  Scratch<char> memory_;
};

// Calls f(worker, task) for each task in [0, tasks), in parallel. Each thread has a worker, the result of
// make(), whose working memory worker.take_memory(arena) allocates, and a ProcessorState object. `work` is
// the number of multiply-adds of a task.
template <class ProcessorState, class Make, class F>
void for_each_task(int64_t tasks, int64_t work, const Make& make, const F& f) {
  Arena count(nullptr);
  make().take_memory(count);
  const PerThreadMemory memory(count.used_bytes());
  constexpr int64_t kMinWorkPerThread = 1 << 16;  // number of multiply-adds
  const int64_t grain = std::max<int64_t>(kMinWorkPerThread / std::max<int64_t>(work, 1), 1);
  parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    [[maybe_unused]] const ProcessorState state;
    auto worker = make();
    Arena arena = memory.arena();
    worker.take_memory(arena);
    for (int64_t task = begin; task < end; ++task) f(worker, task);
  });
}

}  // namespace tapeformer::cpu
