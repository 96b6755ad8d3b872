#include "core/threads/thread_pool.h"

#include <linux/futex.h>
#include <omp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/environment.h"
#include "core/threads/serial_libraries.h"
#include "core/threads/wait_policy.h"
#include "core/threads/worker_sleep_schedule.h"

namespace tapeformer {
namespace {

// ThreadPool::state_ consists of two counts and two flags. Bits 0 to 14 are the number of workers inside the
// loop. Bits 15 to 29 are the number of workers that have joined the loop, including workers that have left.
constexpr uint32_t kOpen = 1u << 31;     // set while workers can join
constexpr uint32_t kWaiting = 1u << 30;  // set while the caller sleeps until the last worker leaves
constexpr uint32_t kOneJoined = 1u << 15, kInside = kOneJoined - 1;

// Maximum times, in nanoseconds, for which the caller of a loop, a worker and a contended worker
// (core/threads/worker_sleep_schedule.h) spin before they sleep. Waking a thread takes about 50 microseconds.
constexpr int64_t kCallerSpin = 100'000, kWorkerSpin = 2'000'000, kContendedSpin = 20'000;

uint32_t count_joined_workers(uint32_t state) {
  return (state & ~(kOpen | kWaiting)) / kOneJoined;
}

int64_t read_clock_nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Sleeps until futex_wake(word) is called, or returns immediately if `word` does not equal `value`. Can also
// return without a call of futex_wake().
void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
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
  const int64_t end = read_clock_nanoseconds(CLOCK_MONOTONIC) + spin_time;
  do
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  while (read_clock_nanoseconds(CLOCK_MONOTONIC) < end);
  return done();
}

// If OMP_PROC_BIND requires bound threads, binds a worker to an OpenMP place, which is a set of processors.
// Without this function, the worker would inherit the place of the main thread.
void bind(int number) {
  // libgomp binds a thread to the first place when it first asks for the place of the thread. Without this
  // call, a parallel region in a library would ask later, which would undo sched_setaffinity().
  omp_get_place_num();
  const int places = omp_get_num_places();
  if (omp_get_proc_bind() == omp_proc_bind_false || places == 0) return;
  const int place = number % places;
  std::vector<int> processors(static_cast<size_t>(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, processors.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Excludes one processor from the affinity mask of a worker. Without this class, Linux often wakes a worker
// on the processor on which the caller of the loop runs, and the two threads compete for this processor.
class ProcessorAvoidance {
 public:
  ProcessorAvoidance() { sched_getaffinity(0, sizeof allowed_, &allowed_); }
  // Excludes only `processor` from the affinity mask. If `processor` is -1, excludes no processor.
  void avoid(int processor) {
    if (processor == avoided_ || CPU_COUNT(&allowed_) == 1) return;
    cpu_set_t set = allowed_;
    if (processor >= 0) CPU_CLR(static_cast<size_t>(processor), &set);
    sched_setaffinity(0, sizeof set, &set);
    avoided_ = processor;
  }

 private:
  cpu_set_t allowed_{};
  int avoided_ = -1;
};

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

}  // namespace

LoopThreadState& get_loop_thread_state() {
  thread_local LoopThreadState thread;
  return thread;
}

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
  caller_processor_.store(sched_getcpu(), std::memory_order_relaxed);
  generation_.fetch_add(1);
  if (sleeping_worker_count_.load() > 0) futex_wake(generation_, max_helpers);
  run_remaining_ranges();
  state_.fetch_and(~kOpen);
  wait_for_workers();
}

void ThreadPool::start_workers(int count) {
  while (worker_count_ < count) {
    const int number = worker_count_ + 1;
    try {
      std::thread([this, number] {
        bind(number);
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
  if ((before & kWaiting) && (before & kInside) == 1) futex_wake(state_, INT_MAX);
}

void ThreadPool::wait_for_workers() {
  if (spin_until(kCallerSpin, [&] { return (state_.load() & kInside) == 0; })) return;
  for (uint32_t state = state_.fetch_or(kWaiting) | kWaiting; state & kInside; state = state_.load())
    futex_wait(state_, state);
}

void ThreadPool::wait_for_loop(uint32_t seen_generation, int64_t spin_time, bool& slept) {
  const auto started = [&] { return generation_.load() != seen_generation; };
  slept = !spin_until(spin_time, started);
  if (!slept) return;
  ++sleeping_worker_count_;
  while (!started()) futex_wait(generation_, seen_generation);
  --sleeping_worker_count_;
}

void ThreadPool::run_worker() {
  const LoopScope scope;
  LoopThreadState& self = get_loop_thread_state();
  WorkerSleepSchedule sleep_schedule;
  ProcessorAvoidance avoidance;
  const auto restart = [&] {
    sleep_schedule.restart(read_clock_nanoseconds(CLOCK_MONOTONIC),
                           read_clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID));
  };
  restart();
  for (uint32_t seen_generation = 0;;) {
    bool slept = false;
    wait_for_loop(seen_generation, sleep_schedule.is_contended() ? kContendedSpin : kWorkerSpin, slept);
    if (slept) restart();
    seen_generation = generation_.load();
    self.index = join_loop();
    if (self.index == 0) continue;
    run_remaining_ranges();
    leave_loop();
    const int64_t wall = read_clock_nanoseconds(CLOCK_MONOTONIC);
    if (!sleep_schedule.needs_update(wall)) continue;
    const int64_t rest = sleep_schedule.update(wall, read_clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID));
    if (rest == 0) continue;
    std::this_thread::sleep_for(std::chrono::nanoseconds(rest));
    avoidance.avoid(sleep_schedule.is_contended() ? caller_processor_.load(std::memory_order_relaxed) : -1);
    restart();
  }
}

}  // namespace tapeformer
