#include "core/caching_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "core/base/errors.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace tapeformer {
namespace {

constexpr int64_t kSmallStep = 64;        // size classes up to kSmallLimit are multiples of kSmallStep
constexpr int64_t kSmallLimit = 1024;     // upper limit of the small size classes, in bytes
constexpr int64_t kStepsPerDoubling = 8;  // number of size classes in (n, 2n] if n is a power of two
constexpr int64_t kHugePage = 2 << 20;    // in bytes

double to_mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

class HostMemory final : public SystemAllocator {
 public:
  void* allocate(int64_t bytes) override {
    const bool huge = bytes >= kHugePage;
    const auto alignment = huge ? static_cast<size_t>(kHugePage) : CachingAllocator::kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, static_cast<size_t>(bytes)) != 0) return nullptr;
    // Huge pages reduce page faults. The system may ignore the request.
    if (huge) madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return block;
  }
  void release(void* block) noexcept override { std::free(block); }
  bool is_host_memory() const override { return true; }
};

// Tells the address sanitizer that the first `usable` bytes of a block are accessible, and that the remaining
// bytes are not. The block has `whole` bytes.
void mark_usable([[maybe_unused]] void* block, [[maybe_unused]] int64_t usable,
                 [[maybe_unused]] int64_t whole) {
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(usable));
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + usable, static_cast<size_t>(whole - usable));
#endif
}

}  // namespace

SystemAllocator& get_host_allocator() {
  static auto* const memory = new HostMemory;
  return *memory;
}

CachingAllocator::SizeClass CachingAllocator::find_size_class(int64_t bytes) {
  if (bytes <= kSmallLimit) {
    const int64_t step = std::max<int64_t>((bytes + kSmallStep - 1) / kSmallStep, 1);
    return {step * kSmallStep, static_cast<size_t>(step - 1)};
  }
  // `octave` satisfies 2^octave < bytes <= 2^(octave + 1).
  const int octave = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 1;
  const int64_t base = int64_t{1} << octave;
  const int64_t step = base / kStepsPerDoubling;
  const int64_t steps = (bytes - base + step - 1) / step;
  constexpr int kFirstOctave = std::bit_width(static_cast<uint64_t>(kSmallLimit)) - 1;
  const int64_t index = kSmallLimit / kSmallStep + (octave - kFirstOctave) * kStepsPerDoubling + steps - 1;
  return {base + steps * step, static_cast<size_t>(index)};
}

int64_t CachingAllocator::get_class_bytes(size_t index) {
  constexpr auto kSmall = static_cast<size_t>(kSmallLimit / kSmallStep);
  if (index < kSmall) return static_cast<int64_t>(index + 1) * kSmallStep;
  const auto above = static_cast<int64_t>(index - kSmall);
  const int64_t base = kSmallLimit << (above / kStepsPerDoubling);
  return base + (above % kStepsPerDoubling + 1) * (base / kStepsPerDoubling);
}

// Returns a cached block or a new block from the system. If a new block does not fit into memory, first
// returns all cached blocks to the system. Returns nullptr if there is still not enough memory. The caller
// must hold mutex_.
void* CachingAllocator::take_block_locked(const SizeClass& size) {
  if (auto& list = free_blocks_[size.index]; !list.empty()) {
    void* const block = list.back();
    list.pop_back();
    stats_.cached_bytes -= size.bytes;
    return block;
  }
  if (stats_.active_bytes + stats_.cached_bytes + size.bytes > limit_) trim_locked();
  if (stats_.active_bytes + size.bytes > limit_) return nullptr;
  if (void* const block = system_allocator_.allocate(size.bytes)) return block;
  if (uses_separate_cache_) return nullptr;  // trim_locked() does nothing while uses_separate_cache_ is true
  trim_locked();
  return system_allocator_.allocate(size.bytes);
}

void* CachingAllocator::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const SizeClass size = find_size_class(bytes);
  const std::scoped_lock lock(mutex_);
  if (free_blocks_.size() <= size.index) free_blocks_.resize(size.index + 1);
  void* const block = take_block_locked(size);
  if (!block)
    throw OutOfMemoryError(
        concat_text("out of memory: asked for ", to_mebibytes(size.bytes), " MiB with ",
                    to_mebibytes(limit_ - stats_.active_bytes), " MiB free of ", to_mebibytes(limit_), " MiB",
                    stats_.active_bytes + size.bytes > limit_ ? "" : ", but the system has no more memory"));
  stats_.active_bytes += size.bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.active_bytes);
  ++stats_.allocation_count;
  if (system_allocator_.is_host_memory())
    mark_usable(block, uses_separate_cache_ ? size.bytes : bytes, size.bytes);
  return block;
}

void CachingAllocator::release(void* block, int64_t bytes) noexcept {
  if (!block) return;
  const SizeClass size = find_size_class(bytes);
  const std::scoped_lock lock(mutex_);
  if (system_allocator_.is_host_memory() && !uses_separate_cache_) mark_usable(block, 0, size.bytes);
  stats_.active_bytes -= size.bytes;
  stats_.cached_bytes += size.bytes;
  free_blocks_[size.index].push_back(block);
}

MemoryStats CachingAllocator::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::scoped_lock lock(mutex_);
  stats_.peak_bytes = stats_.active_bytes;
}

void CachingAllocator::trim_locked() {
  if (uses_separate_cache_) return;
  for (size_t index = 0; index < free_blocks_.size(); ++index) {
    for (void* block : free_blocks_[index]) system_allocator_.release(block);
    stats_.cached_bytes -= get_class_bytes(index) * static_cast<int64_t>(free_blocks_[index].size());
    free_blocks_[index].clear();
  }
}

void CachingAllocator::begin_separate_cache() {
  const std::scoped_lock lock(mutex_);
  uses_separate_cache_ = true;
  saved_shared_cache_.swap(free_blocks_);
}

CachingAllocator::Cache CachingAllocator::end_separate_cache() {
  const std::scoped_lock lock(mutex_);
  uses_separate_cache_ = false;
  saved_shared_cache_.swap(free_blocks_);
  return std::exchange(saved_shared_cache_, {});
}

void CachingAllocator::adopt_cache(Cache cache) {
  const std::scoped_lock lock(mutex_);
  if (free_blocks_.size() < cache.size()) free_blocks_.resize(cache.size());
  for (size_t index = 0; index < cache.size(); ++index)
    free_blocks_[index].insert(free_blocks_[index].end(), cache[index].begin(), cache[index].end());
}

void CachingAllocator::trim() {
  const std::scoped_lock lock(mutex_);
  trim_locked();
}

void CachingAllocator::set_limit(int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  limit_ = bytes;
}

}  // namespace tapeformer
