// The threads of a block as fibers. A fiber runs threads one after another until a thread has to wait. Then
// the next fiber runs the threads that have not started. A kernel without barriers needs one fiber per block.
#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/device.h"
#include "core/emulation/access_recorder.h"
#include "core/emulation/runtime.h"
#include "core/errors.h"
#include "core/threads.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tapeformer::cuda::emulation {
namespace {

using boost::context::stack_context;

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 512 << 10;  // stack frames with a sanitizer are several times larger
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

// Report changes of the stack to the sanitizer, which tracks one stack per thread.
void leave_stack([[maybe_unused]] void** kept, [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(kept, bottom, bytes);
#endif
}
void enter_stack([[maybe_unused]] void* kept, [[maybe_unused]] const void** left,
                 [[maybe_unused]] size_t* left_bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(kept, left, left_bytes);
#endif
}

// Fiber stacks of one thread of the CPU, which reuses them for all of its blocks.
class StackPool {
 public:
  ~StackPool() {
    for (stack_context& stack : free_) system_.deallocate(stack);
  }
  stack_context allocate() {
    if (free_.empty()) return system_.allocate();
    const stack_context stack = free_.back();
    free_.pop_back();
#ifdef __SANITIZE_ADDRESS__
    // The last stack frames of a fiber never return, so their memory is still poisoned.
    ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(stack.sp) - kStackBytes, kStackBytes);
#endif
    return stack;
  }
  void deallocate(stack_context& stack) {
    free_.push_back(stack);
  }

 private:
  boost::context::protected_fixedsize_stack system_{kStackBytes};
  std::vector<stack_context> free_;
};

thread_local StackPool stacks;

struct PooledStack {
  stack_context* taken;
  stack_context allocate() {
    *taken = stacks.allocate();
    return *taken;
  }
  void deallocate(stack_context& stack) { stacks.deallocate(stack); }
};

struct Barrier {
  int arrived = 0;
  uint64_t generation = 0;
};

// The lanes of a warp that take part in shuffles with one mask. Successive shuffles alternate between two
// sets of values, so that a lane can write the next set while slower lanes still read the previous one.
struct WarpGroup {
  uint32_t mask = 0;
  Barrier barrier;
  LaneValues values[2];
};

struct Warp {
  uint32_t alive = 0;
  std::vector<std::unique_ptr<WarpGroup>> groups;
};

struct Fiber {
  boost::context::fiber context, scheduler;
  stack_context stack;
  int thread = -1;
  bool done = false;
  const Barrier* waits_for = nullptr;
  uint64_t generation = 0;
  void* kept = nullptr;  // saved state of the sanitizer

  bool ready() const { return !done && (!waits_for || waits_for->generation != generation); }
  const void* bottom() const { return static_cast<char*>(stack.sp) - stack.size; }
};

struct Aborted {};  // exception that unwinds the threads of a failed block

class Block {
 public:
  Block(dim3 size, size_t shared_bytes, const std::function<void()>& kernel)
      : size_(size),
        count_(static_cast<int>(size.x * size.y * size.z)),
        kernel_(kernel),
        shared_(new unsigned char[shared_bytes]),
        shared_bytes_(shared_bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Runs all threads of the block. If `reversed` is true, threads run from the last to the first.
  void run(bool reversed);
  void barrier();
  const LaneValues& exchange(uint32_t mask, const void* value, size_t bytes);
  void* shared() const { return shared_.get(); }
  int threads() const { return count_; }
  int lane() const { return current_->thread % 32; }
  int thread() const { return current_->thread; }

 private:
  void start_fiber();
  void resume(Fiber& fiber);
  void wait(const Barrier& barrier);
  void run_threads(Fiber& fiber);
  void select(const Fiber& fiber);
  void finish_thread(int thread);
  void abort_with(std::exception_ptr failure);
  // Completes the barrier if all threads have arrived.
  static bool arrive(Barrier& barrier, int expected);
  static int participants(const Warp& warp, uint32_t mask) { return std::popcount(warp.alive & mask); }

  dim3 size_;
  int count_;
  const std::function<void()>& kernel_;
  std::unique_ptr<unsigned char[]> shared_;
  size_t shared_bytes_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Barrier barrier_;
  Fiber* current_ = nullptr;
  int next_ = 0, finished_ = 0;
  bool reversed_ = false;
  std::exception_ptr failure_;
  void* scheduler_kept_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_bytes_ = 0;
};

thread_local Block* current_block = nullptr;

// Records the accesses of blocks during its lifetime and adds them to `log`, if it is not null.
class CountedAccesses {
 public:
  CountedAccesses(AccessLog* log, SourceLocation where, const char* op, const Block& block,
                  size_t shared_bytes)
      : log_(log), where_(where), op_(op) {
    if (log) access_recorder = &recorder_.emplace(block.threads(), block.shared(), shared_bytes);
  }
  ~CountedAccesses() {
    if (!log_) return;
    access_recorder = nullptr;
    log_->add(where_, op_, recorder_->counts());
  }
  CountedAccesses(const CountedAccesses&) = delete;
  CountedAccesses& operator=(const CountedAccesses&) = delete;

  void finish_block() {
    if (log_) recorder_->finish_block();
  }

 private:
  AccessLog* log_;
  SourceLocation where_;
  const char* op_;
  std::optional<AccessRecorder> recorder_;
};

void Block::select(const Fiber& fiber) {
  const auto thread = static_cast<unsigned>(fiber.thread);
  threadIdx = dim3(thread % size_.x, thread / size_.x % size_.y, thread / size_.x / size_.y);
  if (access_recorder) access_recorder->select(fiber.thread);
}

void Block::abort_with(std::exception_ptr failure) {
  if (!failure_) failure_ = std::move(failure);
}

void Block::run_threads(Fiber& fiber) {
  while (next_ < count_ && !failure_) {
    fiber.thread = reversed_ ? count_ - 1 - next_ : next_;
    ++next_;
    select(fiber);
    try {
      kernel_();
    } catch (const Aborted&) {
      return;
    } catch (...) {
      abort_with(std::current_exception());
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
                                          run_threads(fiber);
                                          fiber.done = true;
                                          leave_stack(nullptr, scheduler_bottom_, scheduler_bytes_);
                                          return std::move(fiber.scheduler);
                                        });
  resume(fiber);
}

void Block::resume(Fiber& fiber) {
  current_ = &fiber;
  fiber.waits_for = nullptr;
  leave_stack(&scheduler_kept_, fiber.bottom(), fiber.stack.size);
  fiber.context = std::move(fiber.context).resume();
  enter_stack(scheduler_kept_, nullptr, nullptr);
}

void Block::wait(const Barrier& barrier) {
  Fiber& fiber = *current_;
  fiber.waits_for = &barrier;
  fiber.generation = barrier.generation;
  leave_stack(&fiber.kept, scheduler_bottom_, scheduler_bytes_);
  fiber.scheduler = std::move(fiber.scheduler).resume();
  enter_stack(fiber.kept, &scheduler_bottom_, &scheduler_bytes_);
  if (failure_) throw Aborted{};
  select(fiber);
}

bool Block::arrive(Barrier& barrier, int expected) {
  if (++barrier.arrived < expected) return false;
  barrier.arrived = 0;
  ++barrier.generation;
  return true;
}

void Block::barrier() {
  if (access_recorder) access_recorder->pass_barrier();
  if (!arrive(barrier_, count_)) wait(barrier_);
}

const LaneValues& Block::exchange(uint32_t mask, const void* value, size_t bytes) {
  if (access_recorder && mask == 0xFFFFFFFF) access_recorder->pass_barrier();
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
  if (group.barrier.arrived == 0) values.present = 0;
  if (bytes > 0) std::memcpy(values.bytes[lane()], value, bytes);
  values.present |= 1u << lane();
  if (!arrive(group.barrier, participants(warp, mask))) wait(group.barrier);
  return values;
}

// Marks a thread as finished. Warp operations do not wait for lanes that have left the kernel. The emulation
// of __syncthreads waits for all threads of the block and fails if one of them has left. CUDA leaves this
// case undefined.
void Block::finish_thread(int thread) {
  ++finished_;
  Warp& warp = warps_[static_cast<size_t>(thread / 32)];
  warp.alive &= ~(1u << (thread % 32));
  for (const auto& group : warp.groups) {
    Barrier& barrier = group->barrier;
    if (barrier.arrived > 0 && barrier.arrived == participants(warp, group->mask)) {
      barrier.arrived = 0;
      ++barrier.generation;
    }
  }
}

void Block::run(bool reversed) {
  reversed_ = reversed;
  next_ = finished_ = 0;
  barrier_ = {};
  failure_ = nullptr;
  fibers_.clear();
  warps_.clear();
  warps_.resize(static_cast<size_t>((count_ + 31) / 32));
  for (int thread = 0; thread < count_; ++thread)
    warps_[static_cast<size_t>(thread / 32)].alive |= 1u << (thread % 32);
  // Fills the memory with a bit pattern that is NaN in each floating type, to expose reads of uninitialized
  // memory.
  if (shared_bytes_ > 0) std::memset(shared_.get(), 0xFF, shared_bytes_);
  while (finished_ < count_ && !failure_) {
    bool progress = false;
    for (size_t i = 0; i < fibers_.size(); ++i) {
      Fiber& fiber = *fibers_[reversed_ ? fibers_.size() - 1 - i : i];
      if (!fiber.ready() || failure_) continue;
      resume(fiber);
      progress = true;
    }
    if (next_ < count_ && !failure_) {
      start_fiber();
      progress = true;
    }
    if (!progress)
      abort_with(std::make_exception_ptr(
          std::logic_error(concat_text("kernel: of ", count_, " threads of block ", blockIdx.x, ", ",
                                       finished_, " have ended and the others wait for them"))));
  }
  if (failure_)
    for (const auto& fiber : fibers_)
      if (!fiber->done) resume(*fiber);
  fibers_.clear();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, SourceLocation where,
              const std::function<void()>& kernel) {
  // The threads of every other block, and of every other launch, run in reverse order, so that a missing
  // barrier changes the results.
  static std::atomic<int64_t> launches = 0;
  const int64_t number = launches++;
  const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
  constexpr int64_t kGrain = 4;
  AccessLog* const log = AccessLog::current();
  const char* const op = current_op;
  if (log) log->add_launch(where, op);
  parallel_for(blocks, kGrain, [&](int64_t begin, int64_t end) {
    Block runner(block, shared_bytes, kernel);
    Block* const outer = current_block;
    current_block = &runner;
    CountedAccesses counted(log, where, op, runner, shared_bytes);
    gridDim = grid;
    blockDim = block;
    try {
      for (int64_t b = begin; b < end; ++b) {
        blockIdx = dim3(static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                        static_cast<unsigned>(b / grid.x / grid.y));
        runner.run((number + b) % 2 == 1);
        counted.finish_block();
      }
    } catch (...) {
      current_block = outer;
      throw;
    }
    current_block = outer;
  });
}

void block_barrier() {
  current_block->barrier();
}
void* dynamic_shared_memory() {
  return current_block->shared();
}
const LaneValues& exchange(uint32_t mask, const void* value, size_t bytes) {
  return current_block->exchange(mask, value, bytes);
}
int lane_of_thread() {
  return current_block->lane();
}
void absent_lane(int lane) {
  throw std::logic_error(concat_text("thread ", current_block->thread(), " reads lane ", lane,
                                     ", which does not participate in the shuffle"));
}

}  // namespace tapeformer::cuda::emulation
