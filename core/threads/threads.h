// Parallel loops on the thread pool of this library.
//
// The pool is designed for machines that also run other programs. The caller processes ranges of its loop,
// and waits only for workers that have joined the loop. A worker that the system does not schedule does not
// join. With the threads of OpenMP, a training step of a small model beside a program that uses one of two
// processors takes two to four times as long.
//
// Inside a loop, OpenMP and libraries that use OpenMP (OpenBLAS, oneDNN) run in the calling thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

namespace tapeformer {

// Sets the number of threads that parallel_for, OpenMP and OpenBLAS use. If `count` is 0, uses the default
// number of threads (core/threads/default_threads.h).
void set_thread_count(int count);
// Returns the number of threads. By default, this is the value of the environment variable OMP_NUM_THREADS.
// If the variable is not set, it is the number of processors that the process may use, or less with a quota.
int get_thread_count();

// Returns the number of the calling thread in the current parallel loop, which is less than
// get_thread_count(). Returns 0 for the caller of parallel_for, and outside of loops.
int get_thread_index();

// Maximum number of ranges per thread in parallel_for.
inline constexpr int64_t kMaxRangesPerThread = 4;

namespace detail {

// Returns whether the calling thread is inside a loop of parallel_for or a parallel region of OpenMP.
bool is_in_parallel_region();

// Calls run(context, i) for each i in [0, range_count) on at most `max_threads` threads, including the
// calling thread. If another thread is already inside a loop, the calling thread makes all calls. `run` must
// not throw.
void run_ranges(int64_t range_count, int max_threads, void (*run)(void* context, int64_t range),
                void* context);

}  // namespace detail

// Calls f(begin, end) on disjoint ranges that cover [0, n), in parallel if n exceeds `grain`. The ranges
// depend only on n, grain and the number of threads; idle threads take the next range. If f throws, the first
// exception is rethrown in the calling thread after all calls of f have ended. Nested calls run in the
// calling thread.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  const int64_t pieces = (n + grain - 1) / std::max<int64_t>(grain, 1);
  const int64_t thread_count = std::min<int64_t>(get_thread_count(), pieces);
  if (thread_count <= 1 || detail::is_in_parallel_region()) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  const int64_t range_count = std::min(pieces, thread_count * kMaxRangesPerThread);
  std::exception_ptr failure;
  std::mutex failure_mutex;
  auto run = [&](int64_t range) {
    try {
      f(n * range / range_count, n * (range + 1) / range_count);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  using Run = decltype(run);
  detail::run_ranges(
      range_count, static_cast<int>(thread_count),
      [](void* f_, int64_t range) { (*static_cast<Run*>(f_))(range); }, &run);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tapeformer
