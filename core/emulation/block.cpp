// Execution of the threads of an emulated block by fibers. A fiber runs threads of the block one after
// another until a thread must wait at a barrier. Then another fiber runs threads that have not started. If at
// most n threads wait at the same time, a block needs n + 1 fibers.
#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/base/errors.h"
#include "core/device.h"
#include "core/emulation/runtime.h"
#include "core/threads/threads.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tapeformer::cuda::emulation {
namespace {

using boost::context::stack_context;

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 512 << 10;  // the address sanitizer makes stack frames several times larger
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

// leave_stack() and enter_stack() tell the address sanitizer that this CPU thread changes from the stack of
// one fiber to the stack of another fiber.
void leave_stack([[maybe_unused]] void** sanitizer_state, [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(sanitizer_state, bottom, bytes);
#endif
}
void enter_stack([[maybe_unused]] void* sanitizer_state, [[maybe_unused]] const void** left,
                 [[maybe_unused]] size_t* left_bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(sanitizer_state, left, left_bytes);
#endif
}

// The fiber stacks of one CPU thread. The thread reuses the stacks for all blocks that it runs.
class StackPool {
 public:
  ~StackPool() {
    for (stack_context& stack : free_stacks_) system_.deallocate(stack);
  }
  stack_context allocate() {
    if (free_stacks_.empty()) return system_.allocate();
    const stack_context stack = free_stacks_.back();
    free_stacks_.pop_back();
#ifdef __SANITIZE_ADDRESS__
    // The previous fiber on this stack can leave bytes that are marked as inaccessible for the address
    // sanitizer. This call removes the marks. Otherwise accesses of the new fiber would cause false errors.
    ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(stack.sp) - kStackBytes, kStackBytes);
#endif
    return stack;
  }
  void deallocate(stack_context& stack) {
    free_stacks_.push_back(stack);
  }

 private:
  boost::context::protected_fixedsize_stack system_{kStackBytes};
  std::vector<stack_context> free_stacks_;
};

thread_local StackPool stack_pool;

// An allocator for boost::context that takes the stack from stack_pool.
struct PooledStack {
  stack_context* taken;
  stack_context allocate() {
    *taken = stack_pool.allocate();
    return *taken;
  }
  void deallocate(stack_context& stack) { stack_pool.deallocate(stack); }
};

// A barrier that threads use repeatedly. `generation` increases each time all threads have arrived.
struct Barrier {
  int arrived = 0;  // number of threads that wait in this generation
  uint64_t generation = 0;
};

// The lanes of a warp that execute warp operations with the same mask. Successive operations alternate
// between the two elements of `values`. A lane can therefore write its value for the next operation while
// other lanes still read the values of the previous operation.
struct WarpGroup {
  uint32_t mask = 0;
  Barrier barrier;
  LaneValues values[2];
};

struct Warp {
  uint32_t alive_lanes = 0;                        // bit mask of the lanes that have not left the kernel
  std::vector<std::unique_ptr<WarpGroup>> groups;  // one group per mask that the kernel has used
};

// A fiber, and the thread of the block that it runs.
struct Fiber {
  // `context` resumes this fiber, and `scheduler` resumes Block::run().
  boost::context::fiber context, scheduler;
  stack_context stack;
  int thread = -1;
  bool is_done = false;
  const Barrier* awaited_barrier = nullptr;  // null if the thread does not wait
  uint64_t generation = 0;                   // value of awaited_barrier->generation when the wait began
  void* sanitizer_state = nullptr;  // state of the stack in the address sanitizer, while the fiber waits

  bool can_run() const { return !is_done && (!awaited_barrier || awaited_barrier->generation != generation); }
  const void* bottom() const { return static_cast<char*>(stack.sp) - stack.size; }
};

// An exception that unwinds the stacks of the waiting threads if another thread of the block has failed.
struct Aborted {};

// A thread block in the emulation. Each call of run() executes all threads of one block, so one object can
// execute many blocks of a grid one after another.
class Block {
 public:
  Block(dim3 size, size_t shared_bytes, const std::function<void()>& kernel)
      : size_(size),
        thread_count_(static_cast<int>(size.x * size.y * size.z)),
        kernel_(kernel),
        shared_(new unsigned char[shared_bytes]),
        shared_bytes_(shared_bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Executes all threads of the block `blockIdx`. The threads start in increasing order of their index, or in
  // decreasing order if is_reversed is true.
  void run(bool is_reversed);
  // Implements __syncthreads() for the current thread.
  void barrier();
  // Implements emulation::exchange_lane_values() for the current thread.
  const LaneValues& exchange_lane_values(uint32_t mask, const void* value, size_t bytes);
  void* shared() const { return shared_.get(); }
  int lane() const { return current_->thread % 32; }
  int thread() const { return current_->thread; }

 private:
  // Creates a fiber and resumes it.
  void start_fiber();
  // Runs a fiber until its thread waits at a barrier or the fiber ends.
  void resume(Fiber& fiber);
  // Suspends the current fiber until the barrier is complete. Throws Aborted if another thread of the block
  // has thrown an exception.
  void wait(const Barrier& barrier);
  void run_unstarted_threads(Fiber& fiber);
  // Sets threadIdx to the thread of the fiber.
  void select(const Fiber& fiber);
  void finish_thread(int thread);
  // Stores `failure` if it is the first exception of the block. run() rethrows the stored exception.
  void record_failure(std::exception_ptr failure);
  // Counts the arrival of a thread at the barrier. If all threads have arrived, begins the next generation
  // and returns true.
  static bool arrive(Barrier& barrier, int expected_count);
  static int count_participants(const Warp& warp, uint32_t mask) {
    return std::popcount(warp.alive_lanes & mask);
  }

  dim3 size_;
  int thread_count_;
  const std::function<void()>& kernel_;
  std::unique_ptr<unsigned char[]> shared_;
  size_t shared_bytes_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Barrier barrier_;
  Fiber* current_ = nullptr;
  int next_thread_ = 0, finished_count_ = 0;
  bool is_reversed_ = false;
  std::exception_ptr failure_;
  void* scheduler_sanitizer_state_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_bytes_ = 0;
};

thread_local Block* current_block = nullptr;

void Block::select(const Fiber& fiber) {
  const auto thread = static_cast<unsigned>(fiber.thread);
  threadIdx = dim3(thread % size_.x, thread / size_.x % size_.y, thread / size_.x / size_.y);
}

void Block::record_failure(std::exception_ptr failure) {
  if (!failure_) failure_ = std::move(failure);
}

void Block::run_unstarted_threads(Fiber& fiber) {
  while (next_thread_ < thread_count_ && !failure_) {
    fiber.thread = is_reversed_ ? thread_count_ - 1 - next_thread_ : next_thread_;
    ++next_thread_;
    select(fiber);
    try {
      kernel_();
    } catch (const Aborted&) {
      return;
    } catch (...) {
      record_failure(std::current_exception());
      return;
    }
    finish_thread(fiber.thread);
  }
}

void Block::start_fiber() {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers_.back();
  fiber.context = boost::context::fiber(std::allocator_arg, PooledStack{&fiber.stack},
                                        [this, &fiber](boost::context::fiber&& scheduler) {
                                          enter_stack(nullptr, &scheduler_bottom_, &scheduler_bytes_);
                                          fiber.scheduler = std::move(scheduler);
                                          run_unstarted_threads(fiber);
                                          fiber.is_done = true;
                                          leave_stack(nullptr, scheduler_bottom_, scheduler_bytes_);
                                          return std::move(fiber.scheduler);
                                        });
  resume(fiber);
}

void Block::resume(Fiber& fiber) {
  current_ = &fiber;
  fiber.awaited_barrier = nullptr;
  leave_stack(&scheduler_sanitizer_state_, fiber.bottom(), fiber.stack.size);
  fiber.context = std::move(fiber.context).resume();
  enter_stack(scheduler_sanitizer_state_, nullptr, nullptr);
}

void Block::wait(const Barrier& barrier) {
  Fiber& fiber = *current_;
  fiber.awaited_barrier = &barrier;
  fiber.generation = barrier.generation;
  leave_stack(&fiber.sanitizer_state, scheduler_bottom_, scheduler_bytes_);
  fiber.scheduler = std::move(fiber.scheduler).resume();
  enter_stack(fiber.sanitizer_state, &scheduler_bottom_, &scheduler_bytes_);
  if (failure_) throw Aborted{};
  select(fiber);
}

bool Block::arrive(Barrier& barrier, int expected_count) {
  if (++barrier.arrived < expected_count) return false;
  barrier.arrived = 0;
  ++barrier.generation;
  return true;
}

void Block::barrier() {
  if (!arrive(barrier_, thread_count_)) wait(barrier_);
}

const LaneValues& Block::exchange_lane_values(uint32_t mask, const void* value, size_t bytes) {
  Warp& warp = warps_[static_cast<size_t>(thread() / 32)];
  if (!((mask >> lane()) & 1))
    throw std::logic_error(concat_text("thread ", thread(), " is not in the mask of its own warp operation"));
  auto found = std::find_if(warp.groups.begin(), warp.groups.end(),
                            [&](const auto& candidate) { return candidate->mask == mask; });
  if (found == warp.groups.end()) {
    found = warp.groups.insert(found, std::make_unique<WarpGroup>());
    (*found)->mask = mask;
  }
  WarpGroup& group = **found;
  LaneValues& values = group.values[group.barrier.generation % 2];
  if (group.barrier.arrived == 0) values.present_lanes = 0;
  if (bytes > 0) std::memcpy(values.bytes[lane()], value, bytes);
  values.present_lanes |= 1u << lane();
  if (!arrive(group.barrier, count_participants(warp, mask))) wait(group.barrier);
  return values;
}

// Marks a thread as finished, and completes the warp operations that wait only for this thread. Warp
// operations do not wait for lanes that have left the kernel. In contrast, __syncthreads() waits for all
// threads of the block. If a thread has left the kernel, a later __syncthreads() never completes, and the
// launch throws std::logic_error. In CUDA, the behavior of such a kernel is undefined.
void Block::finish_thread(int thread) {
  ++finished_count_;
  Warp& warp = warps_[static_cast<size_t>(thread / 32)];
  warp.alive_lanes &= ~(1u << (thread % 32));
  for (const auto& group : warp.groups) {
    Barrier& barrier = group->barrier;
    if (barrier.arrived > 0 && barrier.arrived == count_participants(warp, group->mask)) {
      barrier.arrived = 0;
      ++barrier.generation;
    }
  }
}

void Block::run(bool is_reversed) {
  is_reversed_ = is_reversed;
  next_thread_ = finished_count_ = 0;
  barrier_ = {};
  failure_ = nullptr;
  fibers_.clear();
  warps_.clear();
  warps_.resize(static_cast<size_t>((thread_count_ + 31) / 32));
  for (int thread = 0; thread < thread_count_; ++thread)
    warps_[static_cast<size_t>(thread / 32)].alive_lanes |= 1u << (thread % 32);
  // A floating-point number whose bytes are all 0xFF is NaN. If a kernel reads an element of dynamic shared
  // memory before the element is written, the results of the kernel become NaN, and tests detect the error.
  if (shared_bytes_ > 0) std::memset(shared_.get(), 0xFF, shared_bytes_);
  while (finished_count_ < thread_count_ && !failure_) {
    bool has_progress = false;
    for (size_t i = 0; i < fibers_.size(); ++i) {
      Fiber& fiber = *fibers_[is_reversed_ ? fibers_.size() - 1 - i : i];
      if (!fiber.can_run() || failure_) continue;
      resume(fiber);
      has_progress = true;
    }
    if (next_thread_ < thread_count_ && !failure_) {
      start_fiber();
      has_progress = true;
    }
    if (!has_progress)
      record_failure(std::make_exception_ptr(
          std::logic_error(concat_text("kernel: of ", thread_count_, " threads of block ", blockIdx.x, ", ",
                                       finished_count_, " have ended and the others wait for them"))));
  }
  if (failure_)
    for (const auto& fiber : fibers_)
      if (!fiber->is_done) resume(*fiber);
  fibers_.clear();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel) {
  // Threads run in increasing order in every second block, and in decreasing order in the other blocks, so
  // that a missing barrier changes the results. The order in each block also changes from launch to launch.
  static std::atomic<int64_t> launches = 0;
  const int64_t launch_number = launches++;
  const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
  constexpr int64_t kMinBlocks = 4;  // minimum number of blocks per CPU thread
  parallel_for(blocks, kMinBlocks, [&](int64_t begin, int64_t end) {
    Block runner(block, shared_bytes, kernel);
    Block* const outer = current_block;
    current_block = &runner;
    gridDim = grid;
    blockDim = block;
    try {
      for (int64_t b = begin; b < end; ++b) {
        blockIdx = dim3(static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                        static_cast<unsigned>(b / grid.x / grid.y));
        runner.run((launch_number + b) % 2 == 1);
      }
    } catch (...) {
      current_block = outer;
      throw;
    }
    current_block = outer;
  });
}

void wait_at_block_barrier() {
  current_block->barrier();
}
void* dynamic_shared_memory() {
  return current_block->shared();
}
const LaneValues& exchange_lane_values(uint32_t mask, const void* value, size_t bytes) {
  return current_block->exchange_lane_values(mask, value, bytes);
}
int current_lane() {
  return current_block->lane();
}
void throw_absent_lane(int lane) {
  throw std::logic_error(concat_text("thread ", current_block->thread(), " reads lane ", lane,
                                     ", which does not participate in the shuffle"));
}

}  // namespace tapeformer::cuda::emulation
