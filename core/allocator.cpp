#include "core/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace tapeformer {
namespace {

constexpr int64_t kSmallStep = 64;        // classes up to kSmallLimit are multiples of this
constexpr int64_t kSmallLimit = 1024;     // beyond it, each doubling has kStepsPerDoubling classes
constexpr int64_t kStepsPerDoubling = 8;  // rounding wastes at most one eighth
constexpr int64_t kHugePage = 2 << 20;

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

void* system_allocate(int64_t bytes) {
  const bool huge = bytes >= kHugePage;
  const auto alignment = huge ? static_cast<size_t>(kHugePage) : CachingAllocator::kAlignment;
  void* block = nullptr;
  if (posix_memalign(&block, alignment, static_cast<size_t>(bytes)) != 0) return nullptr;
  if (huge) madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer page faults; advice only
  return block;
}

int64_t physical_memory() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

}  // namespace

CachingAllocator::SizeClass CachingAllocator::size_class(int64_t bytes) {
  if (bytes <= kSmallLimit) {
    const int64_t step = std::max<int64_t>((bytes + kSmallStep - 1) / kSmallStep, 1);
    return {step * kSmallStep, static_cast<size_t>(step - 1)};
  }
  const int octave =
      std::bit_width(static_cast<uint64_t>(bytes - 1)) - 1;  // 2^octave < bytes <= 2^(octave+1)
  const int64_t base = int64_t{1} << octave;
  const int64_t step = base / kStepsPerDoubling;
  const int64_t steps = (bytes - base + step - 1) / step;
  constexpr int kFirstOctave = std::bit_width(static_cast<uint64_t>(kSmallLimit)) - 1;
  const int64_t index = kSmallLimit / kSmallStep + (octave - kFirstOctave) * kStepsPerDoubling + steps - 1;
  return {base + steps * step, static_cast<size_t>(index)};
}

void* CachingAllocator::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const SizeClass size = size_class(bytes);
  const std::scoped_lock lock(mutex_);
  if (free_.size() <= size.index) free_.resize(size.index + 1);
  void* block = nullptr;
  if (auto& list = free_[size.index]; !list.empty()) {
    block = list.back();
    list.pop_back();
    stats_.cached -= size.bytes;
  } else {
    if (stats_.active + stats_.cached + size.bytes > limit_) trim_locked();
    if (stats_.active + size.bytes <= limit_) block = system_allocate(size.bytes);
    if (!block)
      throw OutOfMemory(
          concat_text("out of memory: asked for ", mebibytes(size.bytes), " MiB with ",
                      mebibytes(limit_ - stats_.active), " MiB free of ", mebibytes(limit_),
                      " MiB; lower data.batch_size, the sequence length or the model's size, or set "
                      "model.recompute = true or model.reversible = true"));
  }
  stats_.active += size.bytes;
  stats_.peak = std::max(stats_.peak, stats_.active);
  ++stats_.allocations;
  return block;
}

void CachingAllocator::release(void* block, int64_t bytes) noexcept {
  if (!block) return;
  const SizeClass size = size_class(bytes);
  const std::scoped_lock lock(mutex_);
  stats_.active -= size.bytes;
  stats_.cached += size.bytes;
  free_[size.index].push_back(block);
}

MemoryStats CachingAllocator::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::scoped_lock lock(mutex_);
  stats_.peak = stats_.active;
}

void CachingAllocator::trim_locked() {
  for (auto& list : free_) {
    for (void* block : list) std::free(block);
    list.clear();
  }
  stats_.cached = 0;
}

void CachingAllocator::trim() {
  const std::scoped_lock lock(mutex_);
  trim_locked();
}

void CachingAllocator::set_limit(int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  limit_ = bytes;
}

CachingAllocator& allocator(Device device) {
  if (!device.is_cpu()) throw DeviceError("no allocator for " + device.to_string() + " in this build");
  static auto* const cpu = new CachingAllocator(physical_memory());
  return *cpu;
}

}  // namespace tapeformer
