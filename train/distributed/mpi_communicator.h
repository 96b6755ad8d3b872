// A communicator that uses MPI. The class exists only in builds with MPI.
//
// MPI reduces tensors in host memory. Tensors on a device are copied to host memory and back. One thread
// makes all MPI calls, so a reduction overlaps with the work of the caller.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/distributed/communicator.h"
#include "train/distributed/launcher.h"
#include "train/distributed/worker.h"

namespace tapeformer {

class MpiCommunicator final : public Communicator {
 public:
  // Initializes MPI. Throws ConfigError if MPI reports a different rank or number of processes than `launch`,
  // or if Open MPI cannot connect the tasks of srun.
  static std::unique_ptr<MpiCommunicator> start(const LaunchInfo& launch);
  // Finalizes MPI, which waits for the other processes.
  ~MpiCommunicator() override;

  void start_all_reduce(const Tensor& values) override;
  void wait() override;
  void broadcast(const Tensor& values) override;
  void barrier() override;

  // Sets a function that is called every 200 milliseconds while a collective function waits. `check` throws
  // ProcessLostError if a process has ended.
  void set_wait_check(std::function<void()> check) { wait_check_ = std::move(check); }

  // Sums `values`, which must be in host memory, over all processes. Returns true if all processes call the
  // function within `timeout_seconds`. Otherwise returns false. If a process has ended or MPI reports another
  // error, sets `error_message` to the message and returns false. After a result of false, only abort() may
  // be called. Uses a separate MPI communicator, so that MPI does not match the call with another collective
  // function.
  bool all_reduce_within(const Tensor& values, double timeout_seconds, std::string& error_message);
  // Ends all processes of the run with an exit status.
  [[noreturn]] void abort(int exit_status);

 private:
  MpiCommunicator(int rank, int size, std::unique_ptr<Worker> worker);
  void run(Worker::Job job);

  std::unique_ptr<Worker> worker_;
  std::function<void()> wait_check_;
  // Tensors on a device whose reductions have started, each with the copy on the host that MPI reduces.
  std::vector<std::pair<Tensor, Tensor>> staged_reductions_;
};

}  // namespace tapeformer
