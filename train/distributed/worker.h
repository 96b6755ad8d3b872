// A thread that runs jobs in order, for libraries that require all calls from the same thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tapeformer {

class Worker {
 public:
  using Job = std::function<void()>;

  Worker();
  // Waits for all jobs, unless wait() has abandoned the jobs.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Adds a job to the queue.
  void enqueue(Job job);
  // Waits until all jobs have ended and rethrows the first exception of a job. Calls `check` every 200
  // milliseconds while it waits. If `check` throws, the exception propagates and the jobs are abandoned: the
  // jobs continue to run, but the destructor does not wait for them.
  void wait(const std::function<void()>& check = nullptr);

 private:
  // The state of the thread. An abandoned thread continues to use this state after the destruction of the
  // Worker.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;
    std::exception_ptr failure;
    bool is_running_job = false, has_ended = false;
  };
  static void run(const std::shared_ptr<Queue>& queue);

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
  bool is_abandoned_ = false;
};

}  // namespace tapeformer
