// The thread pool that runs the loops of parallel_for().
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tapeformer {

// The state of a thread with respect to the loops of the thread pool.
struct LoopThreadState {
  bool is_in_loop = false;  // always true in workers
  int index = 0;            // index of the thread in the current loop; 0 for the caller
};
LoopThreadState& get_loop_thread_state();

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
  void wait_for_loop(uint32_t seen_generation, int64_t spin_time, bool& slept);
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
  std::atomic<int> caller_processor_{-1};
  // Words that several threads change often are in separate cache lines.
  alignas(64) std::atomic<int64_t> next_range_{0};
  alignas(64) std::atomic<uint32_t> state_{0};       // flags and counts; thread_pool.cpp defines the bits
  alignas(64) std::atomic<uint32_t> generation_{0};  // number of loops started
  std::atomic<uint32_t> sleeping_worker_count_{0};   // workers that sleep until the generation changes
};

}  // namespace tapeformer
