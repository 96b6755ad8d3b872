// Asynchronous copies from global to shared memory (cp.async of the PTX ISA). A thread starts copies, ends
// groups of copies with commit(), and waits for groups. The emulation copies when the thread waits, so a
// kernel that reads before the wait gets the previous contents of shared memory.
#pragma once

#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

// The asynchronous copies of one thread. A thread has at most one object of this type at a time.
class AsyncCopies {
 public:
  // Starts a copy of 16 bytes. Both addresses are multiples of 16. If `valid` is false, writes zeros and does
  // not read the source.
  __device__ void copy(void* shared, const void* global, bool valid);
  // Ends the current group of copies. A group may be empty.
  __device__ void commit();
  // Waits for all groups except the last kPending ones. Other threads see the copies after a barrier.
  template <int kPending>
  __device__ void wait();

#ifdef TAPEFORMER_CUDA_EMULATED
 private:
  struct Copy {
    void* shared;
    const void* global;  // null: zeros
  };
  std::vector<std::vector<Copy>> groups_ = {{}};  // committed groups, and the current group
#endif
};

#ifdef TAPEFORMER_CUDA_EMULATED

inline void AsyncCopies::copy(void* shared, const void* global, bool valid) {
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0)
    throw std::logic_error("kernel: an asynchronous copy needs addresses that are multiples of 16");
  groups_.back().push_back({shared, valid ? global : nullptr});
}
inline void AsyncCopies::commit() {
  groups_.emplace_back();
}
template <int kPending>
void AsyncCopies::wait() {
  while (groups_.size() > kPending + 1) {
    for (const Copy& copy : groups_.front())
      if (copy.global)
        std::memcpy(copy.shared, copy.global, 16);
      else
        std::memset(copy.shared, 0, 16);
    groups_.erase(groups_.begin());
  }
}

#else

__device__ inline void AsyncCopies::copy(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void AsyncCopies::commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ void AsyncCopies::wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#endif

}  // namespace tapeformer::cuda
