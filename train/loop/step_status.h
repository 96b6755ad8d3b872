// Values that the processes of a run exchange once per step: losses, tokens, and requests to stop. All
// processes get the same result, so they make the same decisions.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"
#include "train/distributed/communicator.h"

namespace tapeformer {

// A request to stop after a step.
struct StopRequest {
  int signal = 0;  // SIGINT or SIGTERM; 0: no signal
  bool is_time_up = false;
};

class StepStatus {
 public:
  // Makes the status of this process. `losses`, `terms` and `weights` have one element per micro-batch: its
  // loss, the sum of the terms that layers add to the loss, and its weight in the loss of the step.
  // `processed_unit_count` is the number of predictions or frames of this process, and `stop` is its request
  // to stop.
  StepStatus(const Communicator& processes, const std::vector<double>& losses,
             const std::vector<double>& terms, const std::vector<double>& weights,
             int64_t processed_unit_count, const StopRequest& stop);

  // Returns a tensor of dtype float64 with one row per value of the status and one column per process. The
  // caller must sum this tensor over the processes before it calls the functions below.
  const Tensor& status_matrix() const { return status_matrix_; }

  // Returns the loss of the whole batch.
  double loss() const;
  // Returns the sum of the terms that layers add to the loss of the whole batch.
  double loss_terms() const;
  // Returns the number of predictions or frames of all processes.
  int64_t processed_unit_count() const;
  // Returns the largest signal of all processes, and `is_time_up` of process 0, which measures the time
  // limit.
  StopRequest get_stop_request() const;
  struct NonFiniteLoss {
    int rank;
    int64_t micro_batch;
    double loss;  // weighted sum of the losses of the process
  };
  // Returns the lowest rank with a loss that is not finite, and the first micro-batch of that rank with such
  // a loss. If all losses are finite, returns std::nullopt.
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
