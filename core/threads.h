// Parallel loops on the thread pool of OpenMP, which OpenBLAS shares (its OpenMP build is required).
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tapeformer {

// Sets the number of threads of parallel_for and OpenBLAS. 0 selects all processors of this process.
void set_threads(int count);
inline int threads() {
  return omp_get_max_threads();
}

// Annotations for ThreadSanitizer, which does not see the barriers of libgomp. In all threads, writes before
// `release` happen before reads after the next `acquire`.
namespace region_order {
#ifdef __SANITIZE_THREAD__
inline char object;
inline void release() {
  __tsan_release(&object);
}
inline void acquire() {
  __tsan_acquire(&object);
}
#else
inline void release() {}
inline void acquire() {}
#endif
}  // namespace region_order

// Number of ranges per thread in parallel_for.
inline constexpr int64_t kRangesOfThread = 4;

// Calls f(begin, end) on disjoint ranges that cover [0, n), in parallel if n exceeds `grain`. The ranges
// depend only on n, grain and the number of threads; idle threads take the next range. If f throws, the first
// exception is rethrown in the calling thread after all ranges have ended. Nested calls run in the calling
// thread.
//
// ThreadSanitizer checks f. This function is excluded, because libgomp passes its variables to the threads.
template <class F>
__attribute__((no_sanitize("thread"))) void parallel_for(int64_t n, int64_t grain, F&& f) {
  const int64_t pieces = (n + grain - 1) / std::max<int64_t>(grain, 1);
  const int64_t wanted = std::min<int64_t>(threads(), pieces);
  if (wanted <= 1 || omp_in_parallel()) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  const int64_t ranges = std::min(pieces, wanted * kRangesOfThread);
  std::exception_ptr failure;
  std::mutex failure_mutex;
  region_order::release();
#pragma omp parallel num_threads(static_cast <int>(wanted))
  {
    region_order::acquire();
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t range = 0; range < ranges; ++range) try {
        f(n * range / ranges, n * (range + 1) / ranges);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
    region_order::release();
  }
  region_order::acquire();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tapeformer
