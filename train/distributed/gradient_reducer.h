// Computes the sum of each gradient over the processes of a run. The gradients are reduced in buckets while
// backward() runs.
//
// A bucket is a contiguous buffer for the gradients of several parameters. The first bucket holds the
// gradients of the last parameters of the model, because backward() completes these gradients first. The
// reduction of a bucket starts when the gradients in the bucket and in all earlier buckets are complete, so
// that all processes reduce the buckets in the same order.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"
#include "train/distributed/communicator.h"

namespace tapeformer {

struct ReducerOptions {
  int64_t max_bucket_bytes = 4 << 20;  // maximum size of a bucket with several parameters
  bool use_bfloat16 = false;           // rounds float32 gradients to bfloat16 before the reduction
};

class GradientReducer {
 public:
  // `parameters` must be leaves of the tape and must have the same order on all processes. `processes` must
  // outlive the reducer.
  GradientReducer(Communicator& processes, std::vector<Tensor> parameters, const ReducerOptions& options);

  // Starts a step. Must be called before backward() computes the gradients of the step.
  void begin_step();
  // Marks the gradient of a parameter as complete and starts the reduction of complete buckets. backward()
  // calls the function through BackwardOptions::on_complete.
  void mark_complete(const Tensor& parameter);
  // Replaces each gradient with its sum over all processes. A missing gradient is treated as zeros. A
  // parameter that has no gradient on any process gets no gradient. Also replaces each element of the tensors
  // in `additional` with its sum over all processes. Throws the exceptions of Communicator::wait().
  void finish_step(const std::vector<Tensor>& additional = {});

  // Returns the number of bytes that this process contributes to the reductions of a step.
  int64_t count_bytes_per_step() const;
  int64_t bucket_count() const { return static_cast<int64_t>(buckets_.size()); }

 private:
  struct ParameterSlot {
    Tensor parameter;
    Tensor sum;               // part of Bucket::sums, with the shape of the parameter
    Tensor reduction_buffer;  // the same part of Bucket::reduction_buffer
    size_t bucket = 0;
    bool is_complete = false;
    bool has_gradient = false;  // whether the parameter has a gradient on any process
  };
  struct Bucket {
    std::vector<size_t> slots;
    Tensor sums;                  // gradients of the parameters, summed over all processes
    Tensor reduction_buffer;      // the tensor that is reduced: `sums`, or its bfloat16 copy
    size_t incomplete_count = 0;  // number of parameters without a complete gradient
  };
  void add_bucket(const std::vector<size_t>& slots, const ReducerOptions& options);
  static void copy_gradient_to_slot(const ParameterSlot& slot);
  void start_complete_reductions();
  void exchange_gradient_flags();
  bool is_on_cpu() const { return slots_.empty() || slots_.front().parameter.device().is_cpu(); }

  Communicator& communicator_;
  std::vector<ParameterSlot> slots_;
  std::unordered_map<const void*, size_t> slot_by_id_;  // index in slots_ by Tensor::id()
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;  // first bucket whose reduction has not started
  bool are_gradient_flags_known_ = false;
};

}  // namespace tapeformer
