// Communication between the processes of a data-parallel run. Process 0 writes files and logs.
//
// All processes must call the same collective functions in the same order, with tensors of equal shape and
// dtype. A collective function throws ProcessLostError if another process of the run has ended, and
// std::runtime_error for other errors of MPI.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "core/tensor.h"

namespace tapeformer {

// An exception of a collective function that cannot complete because another process of the run has ended.
class ProcessLostError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The exception that processes other than process 0 throw after an error on process 0. Only process 0 reports
// the error.
class FirstProcessError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  int rank() const { return rank_; }  // number of this process, from 0
  int size() const { return size_; }  // number of processes
  bool is_first() const { return rank_ == 0; }

  // Starts a reduction that replaces each element of `values` with its sum over all processes. The tensor
  // must be contiguous, of dtype float32, float64, bfloat16, int64 or uint8, and must not be used before
  // wait(). Sums of bfloat16 are rounded after each addition. All processes get bitwise equal sums, as MPI
  // requires.
  virtual void start_all_reduce(const Tensor& values) = 0;
  // Waits for all started reductions. If is_stream_ordered() is true, wait() can return before reductions of
  // CUDA tensors are complete. Operations that are launched after wait() wait on the device for the
  // reductions.
  virtual void wait() = 0;
  // Replaces each element of `values` with its sum over all processes.
  void all_reduce(const Tensor& values) {
    start_all_reduce(values);
    wait();
  }
  // Replaces the elements of `values` with the elements of `values` on process 0. `values` must be
  // contiguous.
  virtual void broadcast(const Tensor& values) = 0;
  // Returns whether reductions of CUDA tensors run in stream order.
  virtual bool is_stream_ordered() const { return false; }
  // Blocks until all processes have called barrier().
  virtual void barrier() = 0;

 private:
  int rank_, size_;
};

// Returns the communicator of a run with one process, whose collective functions do nothing.
const std::shared_ptr<Communicator>& get_single_process_communicator();

}  // namespace tapeformer
