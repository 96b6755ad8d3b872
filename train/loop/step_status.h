// Values that the processes of a run exchange once per step: losses, numbers of predictions or frames, and
// stop requests. All processes get the same values, so that all processes stop after the same step.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"
#include "train/distributed/communicator.h"

namespace tapeformer {

// A request to stop after a step.
struct StopRequest {
  int signal = 0;  // the stop signal; 0: no signal
  bool is_time_up = false;
};

class StepStatus {
 public:
  // Creates the status of this process from these values:
  // - losses: the loss of each micro-batch
  // - terms: the sum of the auxiliary losses of all layers, for each micro-batch
  // - weights: the weight of each micro-batch in the loss of the step
  // - processed_unit_count: the number of predictions or frames of this process
  // - stop: the stop request of this process
  StepStatus(const Communicator& processes, const std::vector<double>& losses,
             const std::vector<double>& terms, const std::vector<double>& weights,
             int64_t processed_unit_count, const StopRequest& stop);

  // Returns a float64 tensor with one row for each enumerator of Row and one column for each process. Before
  // other functions of StepStatus are called, the caller must replace the tensor by its sum over the
  // processes (all_reduce).
  const Tensor& status_matrix() const { return status_matrix_; }

  // Returns the loss of the whole batch.
  double loss() const;
  // Returns the sum of the auxiliary losses of all layers for the whole batch.
  double loss_terms() const;
  // Returns the number of predictions or frames of all processes.
  int64_t processed_unit_count() const;
  // Returns the largest signal of all processes, and `is_time_up` of process 0, which measures the time
  // limit.
  StopRequest get_stop_request() const;
  struct NonFiniteLoss {
    int rank;
    int64_t micro_batch;
    double loss;  // weighted sum of the losses of all micro-batches of the process
  };
  // Returns the lowest rank of a process with a non-finite loss, and the first micro-batch of that process
  // whose loss is not finite. If all losses are finite, returns std::nullopt.
  std::optional<NonFiniteLoss> find_non_finite_loss() const;

 private:
  enum Row { kLoss, kTerms, kNonFiniteBatch, kProcessedUnits, kSignal, kTimeIsUp, kRowCount };
  double& element(Row row, int64_t process) const {
    return status_matrix_.data<double>()[row * status_matrix_.size(1) + process];
  }
  double sum(Row row) const;

  Tensor status_matrix_;  // (kRowCount, processes) float64
};

}  // namespace tapeformer
