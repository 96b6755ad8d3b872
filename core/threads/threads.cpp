#include "core/threads/threads.h"

#include <omp.h>

#include <atomic>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/base/environment.h"
#include "core/threads/affinity.h"
#include "core/threads/default_threads.h"
#include "core/threads/openmp_loops.h"
#include "core/threads/serial_libraries.h"
#include "core/threads/wait_policy.h"

#ifdef __SANITIZE_THREAD__
// Suppresses false reports of data races in OpenBLAS. OpenBLAS is not instrumented, so ThreadSanitizer sees
// the calls of memcpy and memset in OpenBLAS, but not the synchronisation of the OpenBLAS threads.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libopenblas\n";
}
#endif

// The entry of libgomp for a parallel region: calls run(data) on each thread of a team. A directive would
// need the library of the compiler, which is another one with clang.
extern "C" void GOMP_parallel(void (*run)(void*), void* data, unsigned thread_count, unsigned flags);

namespace tapeformer {
namespace {

std::atomic<bool> loops_use_openmp = false;
std::atomic<int> configured_count = 0;  // 0 selects the default

// The state of a thread with respect to the loops of the thread pool.
struct LoopThreadState {
  bool is_in_loop = false;  // always true in workers
  int index = 0;            // index of the thread in the current loop; 0 for the caller
};

LoopThreadState& get_loop_thread_state() {
  thread_local LoopThreadState thread;
  return thread;
}

// ThreadPool::state_ consists of two counts and two flags. Bits 0 to 14 are the number of workers inside the
// loop. Bits 15 to 29 are the number of workers that have joined the loop, including workers that have left.
constexpr uint32_t kOpen = 1u << 31;     // set while workers can join
constexpr uint32_t kWaiting = 1u << 30;  // set while the caller sleeps until the last worker leaves
constexpr uint32_t kOneJoined = 1u << 15, kInside = kOneJoined - 1;

// Maximum times, in nanoseconds, for which the caller of a loop and a worker spin before they sleep. Waking a
// thread takes about 50 microseconds.
constexpr int64_t kCallerSpin = 100'000, kWorkerSpin = 2'000'000;

uint32_t count_joined_workers(uint32_t state) {
  return (state & ~(kOpen | kWaiting)) / kOneJoined;
}

int64_t read_clock_nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Returns whether OMP_WAIT_POLICY makes threads sleep instead of spinning.
bool waits_passively() {
  static const bool passive = [] {
    const char* const policy = get_environment_variable("OMP_WAIT_POLICY");
    return policy && is_passive_wait_policy(policy);
  }();
  return passive;
}

// Spins until done() returns true, for at most spin_time nanoseconds. If waits_passively() is true, does not
// spin. Returns the last result of done().
template <class F>
bool spin_until(int64_t spin_time, F&& done) {
  constexpr int kSpinsPerClockRead = 32;
  if (done()) return true;
  if (waits_passively()) return false;
  const int64_t end = read_clock_nanoseconds() + spin_time;
  do
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  while (read_clock_nanoseconds() < end);
  return done();
}

// During the lifetime of the object, LoopThreadState::is_in_loop of the calling thread is true, and OpenMP
// uses only the calling thread.
class LoopScope {
 public:
  LoopScope() { get_loop_thread_state().is_in_loop = true; }
  ~LoopScope() { get_loop_thread_state().is_in_loop = false; }
  LoopScope(const LoopScope&) = delete;
  LoopScope& operator=(const LoopScope&) = delete;

 private:
  SerialOpenMpScope serial_;
};

// Worker threads that help the callers of run_loop(). Workers start when a loop first needs them, and never
// end. Between loops, a worker spins for a short time, and then sleeps.
//
// The caller of a loop and the workers each take one range at a time. When no range is left, the caller
// closes the loop and waits for the workers that have joined the loop. A worker cannot join a closed loop.
class ThreadPool {
 public:
  using RangeFunction = void (*)(void* context, int64_t range);

  // Calls function(context, range) for all ranges in [0, range_count) on the calling thread and at most
  // `max_helpers` workers. If another thread is running a loop, only the calling thread calls `function`.
  void run_loop(int64_t range_count, int max_helpers, RangeFunction function, void* context);

 private:
  void start_workers(int count);
  void run_worker();
  void wait_for_loop(uint32_t seen_generation);
  // Joins the loop. The result is 1 for the first worker that joins the loop, 2 for the second worker, and so
  // on. If the loop is closed or needs no more workers, does not join and returns 0.
  int join_loop();
  void run_remaining_ranges();
  void leave_loop();
  void wait_for_workers();

  std::mutex caller_mutex_;  // held by the thread that has started the current loop
  int worker_count_ = 0;
  // The members from function_ to helpers_ describe the current loop. The caller of the loop changes these
  // members only while no worker is inside a loop.
  RangeFunction function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int64_t> range_count_{0};
  std::atomic<uint32_t> helpers_{0};
  // Words that several threads change often are in separate cache lines.
  alignas(64) std::atomic<int64_t> next_range_{0};
  alignas(64) std::atomic<uint32_t> state_{0};       // flags and counts; see kOpen
  alignas(64) std::atomic<uint32_t> generation_{0};  // number of loops started
};

void ThreadPool::run_loop(int64_t range_count, int max_helpers, RangeFunction function, void* context) {
  const std::unique_lock owner(caller_mutex_, std::try_to_lock);
  const LoopScope scope;
  if (!owner) {
    for (int64_t range = 0; range < range_count; ++range) function(context, range);
    return;
  }
  start_workers(max_helpers);
  function_ = function;
  context_ = context;
  range_count_.store(range_count, std::memory_order_relaxed);
  helpers_.store(static_cast<uint32_t>(max_helpers), std::memory_order_relaxed);
  next_range_.store(0, std::memory_order_relaxed);
  state_.store(kOpen);
  generation_.fetch_add(1);
  for (int i = 0; i < max_helpers; ++i) generation_.notify_one();
  run_remaining_ranges();
  state_.fetch_and(~kOpen);
  wait_for_workers();
}

void ThreadPool::start_workers(int count) {
  while (worker_count_ < count) {
    const int number = worker_count_ + 1;
    try {
      std::thread([this, number] {
        bind_to_place(number);
        run_worker();
      }).detach();
    } catch (const std::system_error&) {
      return;  // the system limits the number of threads; the existing threads do the work
    }
    worker_count_ = number;
  }
}

int ThreadPool::join_loop() {
  for (uint32_t state = state_.load(); state & kOpen;) {
    if (count_joined_workers(state) >= helpers_.load(std::memory_order_relaxed) ||
        next_range_.load(std::memory_order_relaxed) >= range_count_.load(std::memory_order_relaxed))
      return 0;
    if (state_.compare_exchange_weak(state, state + kOneJoined + 1))
      return static_cast<int>(count_joined_workers(state)) + 1;
  }
  return 0;
}

void ThreadPool::run_remaining_ranges() {
  const int64_t count = range_count_.load(std::memory_order_relaxed);
  for (int64_t range = next_range_++; range < count; range = next_range_++) function_(context_, range);
}

void ThreadPool::leave_loop() {
  const uint32_t before = state_.fetch_sub(1);
  if ((before & kWaiting) && (before & kInside) == 1) state_.notify_all();
}

void ThreadPool::wait_for_workers() {
  if (spin_until(kCallerSpin, [&] { return (state_.load() & kInside) == 0; })) return;
  for (uint32_t state = state_.fetch_or(kWaiting) | kWaiting; state & kInside; state = state_.load())
    state_.wait(state);
}

void ThreadPool::wait_for_loop(uint32_t seen_generation) {
  const auto started = [&] { return generation_.load() != seen_generation; };
  if (spin_until(kWorkerSpin, started)) return;
  generation_.wait(seen_generation);
}

void ThreadPool::run_worker() {
  get_loop_thread_state().is_in_loop = true;
  for (uint32_t seen_generation = 0;;) {
    wait_for_loop(seen_generation);
    seen_generation = generation_.load();
    const int index = join_loop();
    if (index == 0) continue;
    get_loop_thread_state().index = index;
    {
      const SerialOpenMpScope serial;  // not for the lifetime: see get_original_levels()
      run_remaining_ranges();
    }
    leave_loop();
  }
}

struct OpenMpLoop {
  void (*function)(void* context, int64_t range);
  void* context;
  int64_t range_count;
  std::atomic<int64_t> next_range = 0;
};

void run_openmp_member(void* data) {
  auto& loop = *static_cast<OpenMpLoop*>(data);
  LoopThreadState& thread = get_loop_thread_state();
  thread = {true, omp_get_thread_num()};
  for (int64_t range = loop.next_range++; range < loop.range_count; range = loop.next_range++)
    loop.function(loop.context, range);
  thread = {};
}

}  // namespace

bool set_loops_use_openmp(bool use) {
  return loops_use_openmp.exchange(use);
}

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
  if (loops_use_openmp.load(std::memory_order_relaxed)) {
    OpenMpLoop loop{run, context, range_count};
    GOMP_parallel(run_openmp_member, &loop, static_cast<unsigned>(max_threads), 0);
    return;
  }
  static auto* const pool = new ThreadPool;
  pool->run_loop(range_count, max_threads - 1, run, context);
}

}  // namespace detail
}  // namespace tapeformer
