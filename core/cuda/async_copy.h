// Asynchronous copies from global to shared memory (cp.async in the PTX ISA). A thread starts copies with
// copy(), closes the group of started copies with commit(), and waits for groups with wait(). The emulation
// copies only in wait(). A kernel that reads the shared memory before wait() then reads the old contents, so
// that tests can detect the error.
#pragma once

#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

// The asynchronous copies of one thread. A thread may have at most one object of this type.
class AsyncCopies {
 public:
  // Starts a copy of 16 bytes. Both addresses must be multiples of 16. If is_valid is false, writes zeros to
  // `shared` and does not read `global`.
  __device__ void copy(void* shared, const void* global, bool is_valid);
  // Closes the current group of copies, which may be empty.
  __device__ void commit();
  // Waits until all closed groups are complete, except the last kPending groups. The calling thread sees its
  // copies after wait(). Other threads of the block see the copies after the next barrier.
  template <int kPending>
  __device__ void wait();

#ifdef TAPEFORMER_CUDA_EMULATED
 private:
  struct Copy {
    void* shared;
    const void* global;  // null: write zeros
  };
  // Groups whose copies have not been done yet. The last group is open: new copies are added to it.
  std::vector<std::vector<Copy>> groups_ = {{}};
#endif
};

#ifdef TAPEFORMER_CUDA_EMULATED

inline void AsyncCopies::copy(void* shared, const void* global, bool is_valid) {
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0)
    throw std::logic_error("kernel: an asynchronous copy needs addresses that are multiples of 16");
  groups_.back().push_back({shared, is_valid ? global : nullptr});
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

__device__ inline void AsyncCopies::copy(void* shared, const void* global, bool is_valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(is_valid ? 16 : 0)
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
