// The caching allocator of a device. Blocks that are released go to a free list of their size class and serve
// the next request of that class, so a training step allocates from the system only once. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tapeformer {

struct MemoryStats {
  int64_t active = 0;       // bytes in live tensors
  int64_t cached = 0;       // bytes kept for reuse
  int64_t peak = 0;         // highest value of active since reset_peak()
  int64_t allocations = 0;  // requests served so far, from the cache or the system
};

// Where an allocator's blocks come from.
class SystemMemory {
 public:
  SystemMemory() = default;
  SystemMemory(const SystemMemory&) = delete;
  SystemMemory& operator=(const SystemMemory&) = delete;
  virtual ~SystemMemory() = default;
  // nullptr when there is no more.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) noexcept = 0;
  // True when the sanitizer can watch the blocks.
  virtual bool on_host() const = 0;
};
SystemMemory& host_memory();

class CachingAllocator {
 public:
  static constexpr size_t kAlignment = 64;

  explicit CachingAllocator(int64_t limit, SystemMemory& system = host_memory())
      : system_(system), limit_(limit) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // At least `bytes` bytes, aligned to kAlignment; nullptr for none. Throws OutOfMemory with the figures.
  void* allocate(int64_t bytes);
  void release(void* block, int64_t bytes) noexcept;

  MemoryStats stats() const;
  void reset_peak();
  // Gives cached blocks back to the system.
  void trim();

  // Blocks that work on a device uses again whenever it is repeated must not serve anyone else. Between the
  // two calls blocks come from the system and go to a cache apart, which the second call returns; adopt()
  // takes such a cache over when the work is not repeated any more.
  using Cache = std::vector<std::vector<void*>>;  // by size class
  void separate();
  Cache rejoin();
  void adopt(Cache cache);

  // Bytes that live tensors may use together (default: the machine's memory).
  void set_limit(int64_t bytes);
  int64_t limit() const { return limit_; }

 private:
  struct SizeClass {
    int64_t bytes;
    size_t index;
  };
  static SizeClass size_class(int64_t bytes);
  static int64_t class_bytes(size_t index);
  void trim_locked();

  void* take_locked(const SizeClass& size);

  SystemMemory& system_;
  mutable std::mutex mutex_;
  Cache free_;
  Cache kept_;  // the usual cache, while blocks are kept apart
  bool separate_ =
      false;  // blocks of such a cache stay open to the sanitizer: it does not see when they are used
  MemoryStats stats_;
  int64_t limit_;
};

}  // namespace tapeformer
