// Communicator of MPI. Only in builds with MPI.
//
// MPI reduces tensors in host memory. Tensors on a device are copied to the host and back. All calls of MPI
// run in one thread of this class, so a reduction overlaps with the work of the caller.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "train/distributed/communicator.h"
#include "train/distributed/launcher.h"
#include "train/distributed/worker.h"

namespace tapeformer {

class MpiCommunicator final : public Communicator {
 public:
  // Initializes MPI. Throws ConfigError if MPI reports other processes than the launch.
  static std::unique_ptr<MpiCommunicator> start(const Launch& launch);
  // Finalizes MPI, which waits for the other processes.
  ~MpiCommunicator() override;

  void start_all_reduce(const Tensor& values) override;
  void wait() override;
  void broadcast(const Tensor& values) override;
  void barrier() override;

  // Calls `check` several times per second while a collective function waits. It throws if a process has
  // ended.
  void set_check(std::function<void()> check) { check_ = std::move(check); }

  // Sums `values` over all processes, if all processes call the function within `seconds`, and returns
  // whether they do. The call matches no other collective function. If a process has ended, `lost` becomes
  // the message. After a false result, only abort() may be called.
  bool all_reduce_within(const Tensor& values, double seconds, std::string& lost);
  // Ends all processes of the run with an exit status.
  [[noreturn]] void abort(int code);

 private:
  MpiCommunicator(int rank, int size, std::unique_ptr<Worker> worker);
  void run(Worker::Job job);

  std::unique_ptr<Worker> worker_;
  std::function<void()> check_;
  // Tensors on devices, and the copies on the host that are being reduced.
  std::vector<std::pair<Tensor, Tensor>> staged_;
};

}  // namespace tapeformer
