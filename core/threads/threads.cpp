#include "core/threads/threads.h"

#include <omp.h>

#include <atomic>

#include "core/threads/default_threads.h"
#include "core/threads/thread_pool.h"

#ifdef __SANITIZE_THREAD__
// Suppresses false reports of data races in OpenBLAS. OpenBLAS is not instrumented, so ThreadSanitizer sees
// the calls of memcpy and memset in OpenBLAS, but not the synchronisation of the OpenBLAS threads.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libopenblas\n";
}
#endif

namespace tapeformer {
namespace {

std::atomic<int> configured_count = 0;  // 0 selects the default

}  // namespace

void set_thread_count(int count) {
  configured_count = count > 0 ? count : get_default_thread_count().count;
  omp_set_num_threads(configured_count);
}

int get_thread_count() {
  const int count = configured_count.load(std::memory_order_relaxed);
  return count > 0 ? count : get_default_thread_count().count;
}

int get_thread_index() {
  return get_loop_thread_state().index;
}

namespace detail {

bool is_in_parallel_region() {
  return get_loop_thread_state().is_in_loop || omp_in_parallel();
}

void run_ranges(int64_t range_count, int max_threads, void (*run)(void* context, int64_t range),
                void* context) {
  static auto* const pool = new ThreadPool;
  pool->run_loop(range_count, max_threads - 1, run, context);
}

}  // namespace detail
}  // namespace tapeformer
