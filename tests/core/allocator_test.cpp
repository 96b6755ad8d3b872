#include "core/allocator.h"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>

using namespace tapeformer;

TEST_CASE("released blocks are reused and counted") {
  CachingAllocator pool(1 << 30);
  void* const first = pool.allocate(1000);
  CHECK(reinterpret_cast<uintptr_t>(first) % CachingAllocator::kAlignment == 0);
  CHECK(pool.stats().active_bytes == 1024);
  pool.release(first, 1000);
  CHECK(pool.stats().active_bytes == 0);
  CHECK(pool.stats().cached_bytes == 1024);
  CHECK(pool.allocate(970) == first);
  CHECK(pool.stats().peak_bytes == 1024);
  CHECK(pool.stats().allocation_count == 2);
  pool.release(first, 970);
  pool.trim();
  CHECK(pool.stats().cached_bytes == 0);
}

TEST_CASE("size classes have at least the requested bytes, and above 1 KiB at most an eighth more") {
  CachingAllocator pool(int64_t{1} << 40);
  for (int64_t bytes : {1, 63, 64, 65, 1023, 1024, 1025, 1152, 1153, 4095, 4097, 65537, 3000000}) {
    const int64_t before = pool.stats().active_bytes;
    void* const block = pool.allocate(bytes);
    const int64_t got = pool.stats().active_bytes - before;
    CHECK(got >= bytes);
    CHECK(got <= std::max<int64_t>(bytes + 63, bytes + bytes / 8 + 1));
    std::memset(block, 1, static_cast<size_t>(bytes));
    pool.release(block, bytes);
  }
  pool.trim();
}

TEST_CASE("the error for missing memory gives the requested and the free memory") {
  CachingAllocator pool(1 << 20);
  CHECK_THROWS_WITH_AS(pool.allocate(1 << 21), doctest::Contains("asked for 2 MiB with 1 MiB free of 1 MiB"),
                       OutOfMemoryError);
  void* const half = pool.allocate(1 << 19);
  pool.release(half, 1 << 19);
  void* const whole = pool.allocate(1 << 20);  // fits after the cache is returned to the system
  CHECK(pool.stats().cached_bytes == 0);
  pool.release(whole, 1 << 20);
  pool.trim();
}

TEST_CASE("the error for missing memory says if the system has less memory than the limit") {
  class Nothing final : public SystemAllocator {
   public:
    void* allocate(int64_t) override { return nullptr; }
    void release(void*) noexcept override {}
    bool is_host_memory() const override { return true; }
  } nothing;
  CachingAllocator pool(1 << 20, nothing);
  CHECK_THROWS_WITH_AS(pool.allocate(1 << 19),
                       doctest::Contains("asked for 0.5 MiB with 1 MiB free of 1 MiB, but the "
                                         "system has no more memory"),
                       OutOfMemoryError);
}

TEST_CASE("the allocator is thread-safe") {
  CachingAllocator pool(1 << 30);
  auto work = [&] {
    for (int i = 0; i < 10000; ++i) {
      void* const block = pool.allocate(64 + i % 512);
      std::memset(block, 7, 64);
      pool.release(block, 64 + i % 512);
    }
  };
  std::thread other(work);
  work();
  other.join();
  CHECK(pool.stats().active_bytes == 0);
  pool.trim();
}
