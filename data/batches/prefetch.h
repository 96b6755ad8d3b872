// A queue whose items are prepared in a separate thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tapeformer {

// A queue of items. A separate thread calls make(step) for all steps from `first` in order and appends the
// results to the queue. The queue contains at most `depth` items. The destructor waits for the current call
// of `make`. Only one thread may call next().
template <class T>
class PrefetchQueue {
 public:
  explicit PrefetchQueue(std::function<T(int64_t step)> make, int64_t first = 0, size_t depth = 2)
      : make_item_(std::move(make)),
        depth_(std::max<size_t>(depth, 1)),
        next_step_(first),
        thread_([this, first](const std::stop_token& stop) { produce(stop, first); }) {}
  PrefetchQueue(const PrefetchQueue&) = delete;
  PrefetchQueue& operator=(const PrefetchQueue&) = delete;
  ~PrefetchQueue() = default;

  // Returns the step of the item that next() returns.
  int64_t next_step() const { return next_step_; }
  // Returns the item of the next step. If make(step) throws, next() first returns the items of the earlier
  // steps. All further calls throw the exception of make(step).
  T next() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [&] { return !ready_.empty() || failure_; });
    if (ready_.empty()) std::rethrow_exception(failure_);
    T item = std::move(ready_.front());
    ready_.pop_front();
    ++next_step_;
    lock.unlock();
    condition_.notify_all();
    return item;
  }

 private:
  void produce(const std::stop_token& stop, int64_t step) try {
    for (;; ++step) {
      std::unique_lock lock(mutex_);
      if (!condition_.wait(lock, stop, [&] { return ready_.size() < depth_; })) return;
      lock.unlock();
      if (stop.stop_requested()) return;
      T item = make_item_(step);
      lock.lock();
      ready_.push_back(std::move(item));
      lock.unlock();
      condition_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    condition_.notify_all();
  }

  std::function<T(int64_t)> make_item_;
  size_t depth_;
  int64_t next_step_;
  std::mutex mutex_;  // guards ready_ and failure_
  std::deque<T> ready_;
  std::exception_ptr failure_;
  std::condition_variable_any condition_;
  std::jthread thread_;  // destroyed first, because the thread uses the other members
};

}  // namespace tapeformer
