// A communicator that uses MPI. The class MpiCommunicator exists only in builds with MPI.
//
// MPI reduces tensors in host memory. Tensors on a device are copied to host memory and back. A worker thread
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

  // Replaces each element of `values`, a tensor in host memory, with its sum over all processes. Returns
  // whether the reduction succeeds. The reduction fails in these cases:
  // - The reduction takes longer than `timeout_seconds`.
  // - Another process has ended, or MPI reports an error. In this case, all_reduce_with_timeout() sets
  // `error_message`. If the reduction fails, the caller must call abort().
  //
  // The reduction uses a separate MPI communicator, because other processes can be blocked in a different
  // collective function.
  bool all_reduce_with_timeout(const Tensor& values, double timeout_seconds, std::string& error_message);
  // Ends all processes of the run with the exit status `exit_status`.
  [[noreturn]] void abort(int exit_status);

 private:
  MpiCommunicator(int rank, int size, std::unique_ptr<Worker> worker);
  void run(Worker::Job job);

  std::unique_ptr<Worker> worker_;
  std::function<void()> wait_check_;
  // The started reductions of tensors on a device. Each pair contains the tensor and the copy in host memory
  // that MPI reduces.
  std::vector<std::pair<Tensor, Tensor>> staged_reductions_;
};

}  // namespace tapeformer
