#include "core/threads/blas_buffer.h"

#include <sys/resource.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>

#include "core/base/host_memory.h"

namespace tapeformer {
namespace {

constexpr int64_t kBufferBytes = int64_t{132} << 20;  // 128 MiB, and other allocations of OpenBLAS

bool has_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

bool is_address_space_limited() {
  static const bool limited = has_limit(RLIMIT_AS) || has_limit(RLIMIT_DATA);
  return limited;
}

struct BufferCounts {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0, used = 0;
  bool is_allocating = false;  // while OpenBLAS allocates the newest buffer
};

BufferCounts& get_counts() {
  static auto* const counts = new BufferCounts;
  return *counts;
}

}  // namespace

BlasBuffer::BlasBuffer() {
  if (!is_address_space_limited()) return;
  BufferCounts& buffers = get_counts();
  std::unique_lock lock(buffers.mutex);
  if (buffers.used == buffers.count && !buffers.is_allocating && can_map_memory(kBufferBytes)) {
    ++buffers.count;
    is_new_ = buffers.is_allocating = true;
  }
  if (buffers.count == 0)
    throw std::runtime_error(
        "out of memory: the limit on the address space (ulimit -v) has no room for the buffer of OpenBLAS, "
        "which has 128 MiB");
  buffers.changed.wait(lock, [&] { return buffers.used < buffers.count; });
  ++buffers.used;
}

BlasBuffer::~BlasBuffer() {
  if (!is_address_space_limited()) return;
  BufferCounts& buffers = get_counts();
  {
    const std::lock_guard lock(buffers.mutex);
    --buffers.used;
    if (is_new_) buffers.is_allocating = false;
  }
  buffers.changed.notify_one();
}

}  // namespace tapeformer
