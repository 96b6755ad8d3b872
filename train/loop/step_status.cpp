#include "train/loop/step_status.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tapeformer {

StepStatus::StepStatus(const Communicator& processes, const std::vector<double>& losses,
                       const std::vector<double>& terms, const std::vector<double>& weights,
                       int64_t processed_unit_count, const StopRequest& stop)
    : status_matrix_(Tensor::zeros({kRowCount, processes.size()}, DType::float64)) {
  const int rank = processes.rank();
  for (size_t i = 0; i < losses.size(); ++i) {
    element(kLoss, rank) += weights[i] * losses[i];
    element(kTerms, rank) += weights[i] * terms[i];
    if (!std::isfinite(losses[i]) && element(kNonFiniteBatch, rank) == 0)
      element(kNonFiniteBatch, rank) = static_cast<double>(i + 1);
  }
  element(kProcessedUnits, rank) = static_cast<double>(processed_unit_count);
  element(kSignal, rank) = stop.signal;
  element(kTimeIsUp, rank) = stop.is_time_up;
}

double StepStatus::sum(Row row) const {
  const double* const first = &element(row, 0);
  return std::accumulate(first, first + status_matrix_.size(1), 0.0);
}

double StepStatus::loss() const {
  return sum(kLoss);
}

double StepStatus::loss_terms() const {
  return sum(kTerms);
}

int64_t StepStatus::processed_unit_count() const {
  return static_cast<int64_t>(sum(kProcessedUnits));
}

StopRequest StepStatus::get_stop_request() const {
  const double* const signals = &element(kSignal, 0);
  return {.signal = static_cast<int>(*std::max_element(signals, signals + status_matrix_.size(1))),
          .is_time_up = element(kTimeIsUp, 0) != 0};
}

std::optional<StepStatus::NonFiniteLoss> StepStatus::find_non_finite_loss() const {
  for (int process = 0; process < status_matrix_.size(1); ++process)
    if (const double batch = element(kNonFiniteBatch, process); batch > 0)
      return NonFiniteLoss{process, static_cast<int64_t>(batch) - 1, element(kLoss, process)};
  return {};
}

}  // namespace tapeformer
