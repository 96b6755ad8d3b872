// The functions that instrumented kernels call before each access to memory. gcc inserts the calls with the
// option -fsanitize=thread, and ThreadSanitizer defines the names of the functions. Programs that count
// accesses link this file instead of the library of ThreadSanitizer.
//
// An atomic load counts as one read, and any other atomic access as one write. Fences do not count.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/emulation/access_recorder.h"

namespace {

using tapeformer::cuda::emulation::access_recorder;

inline void record_access(const void* return_address, const void* address, size_t bytes, bool is_write) {
  if (access_recorder) access_recorder->record_access(return_address, address, bytes, is_write);
}

}  // namespace

extern "C" {

// gcc adds a static constructor to each instrumented file, and this constructor calls __tsan_init().
void __tsan_init() {
  tapeformer::record_instrumented_kernels();
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read1(const void* address) {
  record_access(__builtin_return_address(0), address, 1, false);
}
void __tsan_read2(const void* address) {
  record_access(__builtin_return_address(0), address, 2, false);
}
void __tsan_read4(const void* address) {
  record_access(__builtin_return_address(0), address, 4, false);
}
void __tsan_read8(const void* address) {
  record_access(__builtin_return_address(0), address, 8, false);
}
void __tsan_read16(const void* address) {
  record_access(__builtin_return_address(0), address, 16, false);
}
void __tsan_unaligned_read2(const void* address) {
  record_access(__builtin_return_address(0), address, 2, false);
}
void __tsan_unaligned_read4(const void* address) {
  record_access(__builtin_return_address(0), address, 4, false);
}
void __tsan_unaligned_read8(const void* address) {
  record_access(__builtin_return_address(0), address, 8, false);
}
void __tsan_unaligned_read16(const void* address) {
  record_access(__builtin_return_address(0), address, 16, false);
}
void __tsan_read_range(const void* address, size_t bytes) {
  record_access(__builtin_return_address(0), address, bytes, false);
}
void __tsan_write1(const void* address) {
  record_access(__builtin_return_address(0), address, 1, true);
}
void __tsan_write2(const void* address) {
  record_access(__builtin_return_address(0), address, 2, true);
}
void __tsan_write4(const void* address) {
  record_access(__builtin_return_address(0), address, 4, true);
}
void __tsan_write8(const void* address) {
  record_access(__builtin_return_address(0), address, 8, true);
}
void __tsan_write16(const void* address) {
  record_access(__builtin_return_address(0), address, 16, true);
}
void __tsan_unaligned_write2(const void* address) {
  record_access(__builtin_return_address(0), address, 2, true);
}
void __tsan_unaligned_write4(const void* address) {
  record_access(__builtin_return_address(0), address, 4, true);
}
void __tsan_unaligned_write8(const void* address) {
  record_access(__builtin_return_address(0), address, 8, true);
}
void __tsan_unaligned_write16(const void* address) {
  record_access(__builtin_return_address(0), address, 16, true);
}
void __tsan_write_range(const void* address, size_t bytes) {
  record_access(__builtin_return_address(0), address, bytes, true);
}

void __tsan_atomic_thread_fence(int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

uint8_t __tsan_atomic8_load(uint8_t const volatile* from, int) {
  record_access(__builtin_return_address(0), const_cast<const uint8_t*>(from), 1, false);
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_load(uint32_t const volatile* from, int) {
  record_access(__builtin_return_address(0), const_cast<const uint32_t*>(from), 4, false);
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
void __tsan_atomic32_store(uint32_t volatile* to, uint32_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint32_t*>(to), 4, true);
  __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_exchange(uint32_t volatile* target, uint32_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint32_t*>(target), 4, true);
  return __atomic_exchange_n(target, value, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_fetch_add(uint32_t volatile* target, uint32_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint32_t*>(target), 4, true);
  return __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_fetch_sub(uint32_t volatile* target, uint32_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint32_t*>(target), 4, true);
  return __atomic_fetch_sub(target, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_compare_exchange_strong(uint32_t volatile* target, uint32_t* expected, uint32_t value,
                                            int, int) {
  record_access(__builtin_return_address(0), const_cast<uint32_t*>(target), 4, true);
  return __atomic_compare_exchange_n(target, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_compare_exchange_weak(uint32_t volatile* target, uint32_t* expected, uint32_t value, int,
                                          int) {
  record_access(__builtin_return_address(0), const_cast<uint32_t*>(target), 4, true);
  return __atomic_compare_exchange_n(target, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
uint64_t __tsan_atomic64_load(uint64_t const volatile* from, int) {
  record_access(__builtin_return_address(0), const_cast<const uint64_t*>(from), 8, false);
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
void __tsan_atomic64_store(uint64_t volatile* to, uint64_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint64_t*>(to), 8, true);
  __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}
uint64_t __tsan_atomic64_exchange(uint64_t volatile* target, uint64_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint64_t*>(target), 8, true);
  return __atomic_exchange_n(target, value, __ATOMIC_SEQ_CST);
}
uint64_t __tsan_atomic64_fetch_add(uint64_t volatile* target, uint64_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint64_t*>(target), 8, true);
  return __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);
}
uint64_t __tsan_atomic64_fetch_sub(uint64_t volatile* target, uint64_t value, int) {
  record_access(__builtin_return_address(0), const_cast<uint64_t*>(target), 8, true);
  return __atomic_fetch_sub(target, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic64_compare_exchange_strong(uint64_t volatile* target, uint64_t* expected, uint64_t value,
                                            int, int) {
  record_access(__builtin_return_address(0), const_cast<uint64_t*>(target), 8, true);
  return __atomic_compare_exchange_n(target, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
int __tsan_atomic64_compare_exchange_weak(uint64_t volatile* target, uint64_t* expected, uint64_t value, int,
                                          int) {
  record_access(__builtin_return_address(0), const_cast<uint64_t*>(target), 8, true);
  return __atomic_compare_exchange_n(target, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

}  // extern "C"
