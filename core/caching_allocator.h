// The caching allocator of a device. A released block goes to the free list of its size class. A later
// request for the same size class takes the block from the list. If all training steps have the same shapes,
// only the first step allocates memory from the system. All methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tapeformer {

struct MemoryStats {
  int64_t active_bytes = 0;      // bytes in blocks that are in use
  int64_t cached_bytes = 0;      // bytes in released blocks that are kept for reuse
  int64_t peak_bytes = 0;        // highest value of active_bytes since reset_peak()
  int64_t allocation_count = 0;  // number of requests served from the cache or the system
};

// An interface that allocates and frees memory of one device. CachingAllocator calls it for new blocks.
class SystemAllocator {
 public:
  SystemAllocator() = default;
  SystemAllocator(const SystemAllocator&) = delete;
  SystemAllocator& operator=(const SystemAllocator&) = delete;
  virtual ~SystemAllocator() = default;
  // Returns a block of `bytes` bytes, or nullptr if no memory is available.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) noexcept = 0;
  virtual bool is_host_memory() const = 0;
};
SystemAllocator& get_host_allocator();

class CachingAllocator {
 public:
  static constexpr size_t kAlignment = 64;  // in bytes

  explicit CachingAllocator(int64_t limit, SystemAllocator& system_allocator = get_host_allocator())
      : system_allocator_(system_allocator), limit_(limit) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns a block of at least `bytes` bytes, aligned to kAlignment. Returns nullptr if `bytes` is 0.
  // Throws OutOfMemoryError if the limit would be exceeded, or if the system has no more memory.
  void* allocate(int64_t bytes);
  // Adds a block to the cache. `bytes` must be the number of bytes that was passed to allocate() for this
  // block.
  void release(void* block, int64_t bytes) noexcept;

  MemoryStats stats() const;
  void reset_peak();
  // Returns the cached blocks to the system.
  void trim();

  // A captured CUDA graph reuses its memory blocks on every replay, so other work must not use these blocks.
  // begin_separate_cache() replaces the shared cache by an empty cache. end_separate_cache() restores the
  // shared cache and returns the separate cache. adopt_cache() adds a separate cache to the shared cache.
  using Cache = std::vector<std::vector<void*>>;  // one list of blocks per size class
  void begin_separate_cache();
  Cache end_separate_cache();
  void adopt_cache(Cache cache);

  // Sets the maximum of MemoryStats::active_bytes.
  void set_limit(int64_t bytes);
  int64_t limit() const { return limit_; }

 private:
  struct SizeClass {
    int64_t bytes;
    size_t index;
  };
  static SizeClass find_size_class(int64_t bytes);
  static int64_t get_class_bytes(size_t index);
  void trim_locked();

  void* take_block_locked(const SizeClass& size);

  SystemAllocator& system_allocator_;
  mutable std::mutex mutex_;
  Cache free_blocks_;
  Cache saved_shared_cache_;
  // True between begin_separate_cache() and end_separate_cache(). During this time, blocks are neither
  // returned to the system nor marked as inaccessible for the address sanitizer, because replays of a CUDA
  // graph access the blocks.
  bool uses_separate_cache_ = false;
  MemoryStats stats_;
  int64_t limit_;
};

}  // namespace tapeformer
