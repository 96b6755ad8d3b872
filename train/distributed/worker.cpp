#include "train/distributed/worker.h"

#include <chrono>
#include <utility>

namespace tapeformer {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{200};

}  // namespace

Worker::Worker() : queue_(std::make_shared<Queue>()), thread_([queue = queue_] { run(queue); }) {}

Worker::~Worker() {
  if (is_abandoned_) {
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->has_ended = true;
  }
  queue_->changed.notify_all();
  thread_.join();
}

void Worker::enqueue(Job job) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->jobs.push_back(std::move(job));
  }
  queue_->changed.notify_all();
}

void Worker::wait(const std::function<void()>& check) {
  std::unique_lock lock(queue_->mutex);
  const auto idle = [&] { return queue_->jobs.empty() && !queue_->is_running_job; };
  while (!queue_->changed.wait_for(lock, kCheckInterval, idle)) {
    if (!check) continue;
    try {
      check();
    } catch (...) {
      is_abandoned_ = true;
      throw;
    }
  }
  if (queue_->failure) std::rethrow_exception(std::exchange(queue_->failure, nullptr));
}

void Worker::run(const std::shared_ptr<Queue>& queue) {
  std::unique_lock lock(queue->mutex);
  for (;;) {
    queue->changed.wait(lock, [&] { return queue->has_ended || !queue->jobs.empty(); });
    if (queue->jobs.empty()) return;
    const Job job = std::move(queue->jobs.front());
    queue->jobs.pop_front();
    queue->is_running_job = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    queue->is_running_job = false;
    if (!queue->failure) queue->failure = failure;
    queue->changed.notify_all();
  }
}

}  // namespace tapeformer
