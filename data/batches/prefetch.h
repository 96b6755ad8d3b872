// A queue whose items are prepared in a separate thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tapeformer {

// A queue of items. A separate thread calls make(step) for the steps [first, end) in order and appends the
// results to the queue. The queue contains at most `depth` items. The destructor waits for the current call
// of `make`. Only one thread may call next().
template <class T>
class PrefetchQueue {
 public:
  explicit PrefetchQueue(std::function<T(int64_t step)> make, int64_t first = 0,
                         int64_t end = std::numeric_limits<int64_t>::max(), size_t depth = 2)
      : make_item_(std::move(make)),
        depth_(std::max<size_t>(depth, 1)),
        thread_([this, first, end](const std::stop_token& stop) { produce(stop, first, end); }) {}
  PrefetchQueue(const PrefetchQueue&) = delete;
  PrefetchQueue& operator=(const PrefetchQueue&) = delete;
  ~PrefetchQueue() = default;

  // Returns the item of the next step, or std::nullopt after the last step. If make(step) throws, next()
  // first returns the items of the earlier steps. All further calls throw the exception of make(step).
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [&] { return !ready_.empty() || is_done_; });
    if (ready_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return std::nullopt;
    }
    T item = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    condition_.notify_all();
    return item;
  }

 private:
  void produce(const std::stop_token& stop, int64_t first, int64_t end) {
    std::exception_ptr failure;
    try {
      for (int64_t step = first; step < end; ++step) {
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
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    is_done_ = true;
    condition_.notify_all();
  }

  std::function<T(int64_t)> make_item_;
  size_t depth_;
  std::mutex mutex_;  // guards ready_, failure_ and is_done_
  std::deque<T> ready_;
  std::exception_ptr failure_;
  bool is_done_ = false;
  std::condition_variable_any condition_;
  std::jthread thread_;  // destroyed first, because the thread uses the other members
};

}  // namespace tapeformer
